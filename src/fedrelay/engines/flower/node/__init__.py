"""A node: the part of a federation that holds data. It answers questions and never runs code that was sent to it."""
