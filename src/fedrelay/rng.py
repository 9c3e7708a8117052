"""Keyed randomness: every draw has its own generator, named by what it is for.

There is no global random state. So results do not depend on the order in which clients are trained, on the number of
workers, or on where a run was interrupted.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Key = int | str

_CHUNK = 1 << 20


def derive(seed: int, purpose: str, *keys: Key) -> bytes:
    """A 16-byte hash of the arguments."""
    name = "\x1f".join([str(seed), purpose, *[f"{type(key).__name__}:{key}" for key in keys]])
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def generator(seed: int, purpose: str, *keys: Key) -> np.random.Generator:
    """A new NumPy generator for one purpose, e.g. `generator(seed, "batches", round, route, hop, client)`.

    The same arguments always give the same numbers.
    """
    key = np.frombuffer(derive(seed, purpose, *keys), dtype="<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


class KeyedRandom:
    """One generator that is given a new key for every use: the same numbers as `generator`, but much faster.

    Finish drawing under one key before you set the next.
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self.seed, self.purpose = seed, purpose
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        # Numbers of Python, because NumPy reads them several times faster than those of its own arrays.
        state: Any = self.bits.state
        self.counter = tuple(state["state"]["counter"].tolist())
        self.rest = {**state, "buffer": tuple(state["buffer"].tolist())}

    def at(self, *keys: Key) -> np.random.Generator:
        """The same as `generator(seed, purpose, *keys)`."""
        key = struct.unpack("<2Q", derive(self.seed, self.purpose, *keys))
        state: Any = {**self.rest, "state": {"counter": self.counter, "key": key}}
        self.bits.state = state
        return self.generator


def torch_seed(seed: int, purpose: str, *keys: Key) -> int:
    """A seed for PyTorch (dropout, weight initialisation)."""
    return int.from_bytes(derive(seed, purpose, *keys), "little") % 2**63


def secret_uniform(size: int) -> NDArray[np.floating[Any]]:
    """Numbers in (0, 1] that nobody can predict or repeat: every bit comes from the operating system."""
    bits = np.frombuffer(os.urandom(8 * size), dtype="<u8")
    return ((bits >> np.uint64(11)) + 1.0) * 2.0**-53  # never 0, because its logarithm is infinite


def secret_normal(size: int) -> NDArray[np.float64]:
    """Standard normal numbers that nobody can predict or repeat: every bit comes from the operating system.

    Philox is not a cryptographic generator, even with a secret key: noise that an attacker sees (where a weight did not
    change, only the noise is sent) might reveal other noise.
    """
    numbers = np.empty(size + size % 2)
    for begin in range(0, len(numbers), _CHUNK):
        part = numbers[begin : begin + _CHUNK]
        uniform = secret_uniform(len(part)).reshape(2, -1)
        radius, angle = np.sqrt(-2.0 * np.log(uniform[0])), 2.0 * np.pi * uniform[1]
        part[:] = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return numbers[:size]
