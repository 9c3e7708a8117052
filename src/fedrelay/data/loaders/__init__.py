"""Loaders of real data sets, one module per family of formats.

Each module has `recognise(location)`, which returns the path to load if a folder or file has the data set, without
opening it, and `load(location)`, which returns a `Dataset` or raises a `DataError` that names the file and the problem.
No loader runs code from a file, and none downloads anything.
"""
