"""Merges: how the server joins what comes home. One file per rule."""
