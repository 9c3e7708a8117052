"""Keyed randomness: every draw has its own generator, named by what it is for.

There is no global stream to advance, so a result cannot depend on the order in which clients are
trained, on the number of workers, or on where a run was interrupted.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = int | str


def derive(seed: int, purpose: str, *keys: Key) -> bytes:
    """Sixteen bytes that depend on every argument and on nothing else."""
    name = "\x1f".join([str(seed), purpose, *(f"{type(key).__name__}:{key}" for key in keys)])
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def generator(seed: int, purpose: str, *keys: Key) -> np.random.Generator:
    """A fresh NumPy generator for one purpose, e.g. `generator(seed, "batches", round, route, hop, client)`."""
    key = np.frombuffer(derive(seed, purpose, *keys), dtype="<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(seed: int, purpose: str, *keys: Key) -> int:
    """A seed for torch (dropout, weight initialisation)."""
    return int.from_bytes(derive(seed, purpose, *keys), "little") % 2**63
