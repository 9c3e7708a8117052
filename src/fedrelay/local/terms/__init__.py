"""Local terms: what a client does besides plain training. One file per term."""
