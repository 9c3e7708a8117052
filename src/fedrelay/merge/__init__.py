"""Merges: how the server turns arrivals into the next global model. One file for each rule."""
