"""Data sets, partitions, and federations of clients with their samples."""
