"""Grouping: profiles describe clients, distances compare them, assigners form groups."""
