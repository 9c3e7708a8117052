"""Learning tasks: what a model learns. One file for each task."""
