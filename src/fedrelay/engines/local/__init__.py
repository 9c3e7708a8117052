"""The engine for one machine."""
