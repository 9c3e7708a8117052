"""The contenders of `benchmarks/peers.py`, one script each, and what judges them."""
