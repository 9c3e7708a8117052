"""Data sets, partitions and federations: who holds what."""
