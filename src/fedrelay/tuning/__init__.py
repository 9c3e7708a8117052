"""Tuning: the same budget for every method, choices on validation samples, then a comparison with fresh seeds."""
