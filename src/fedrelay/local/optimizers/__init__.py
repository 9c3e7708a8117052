"""Optimisers: one file each."""
