"""Models: a small zoo, the flat layout that all methods use, and batched models."""
