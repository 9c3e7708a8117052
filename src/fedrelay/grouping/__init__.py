"""Grouping: who travels with whom."""
