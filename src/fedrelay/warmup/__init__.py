"""Warm-ups: what comes before a method, as a program of its own that hands over the model."""
