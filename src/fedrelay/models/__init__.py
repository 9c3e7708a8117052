"""Models: a small zoo, and the flat layout every method computes on."""
