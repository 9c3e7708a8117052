"""Warm-ups: rounds of another kind before the rounds of the method."""
