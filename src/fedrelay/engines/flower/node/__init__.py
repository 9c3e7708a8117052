"""The node: it holds the data, answers requests, and never runs code that was sent to it."""
