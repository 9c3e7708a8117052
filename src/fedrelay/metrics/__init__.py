"""Metrics of a run: classification scores, learning curves, forgetting and label skew."""
