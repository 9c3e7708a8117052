"""An example plug-in: the route `pairs` and the local term `l1prox`."""
