"""Local terms: what is added to a client's loss or gradient. One file per term."""
