"""Readers of real data sets, one module per family of formats.

Each module has `recognise(location)`, which says what there is to load at a folder or file without opening
it, and `load(location)`, which reads it into a `Dataset` or raises a `DataError` that names the file and
its defect. No reader runs code from a file, and none downloads anything.
"""
