"""The engine for a Ray cluster."""
