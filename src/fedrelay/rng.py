"""Keyed randomness: every draw has its own generator, named by what it is for.

There is no global stream to advance, so a result cannot depend on the order in which clients are
trained, on the number of workers, or on where a run was interrupted.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = int | str


def derive(seed: int, purpose: str, *keys: Key) -> int:
    """A 128-bit integer that depends on every argument and on nothing else."""
    name = "\x1f".join([str(seed), purpose, *(f"{type(key).__name__}:{key}" for key in keys)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, *keys: Key) -> np.random.Generator:
    """A fresh NumPy generator for one purpose, e.g. `generator(seed, "batches", round, route, hop, client)`."""
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: Key) -> int:
    """A seed for `torch.manual_seed` (dropout, weight initialisation)."""
    return derive(seed, purpose, *keys) % 2**63
