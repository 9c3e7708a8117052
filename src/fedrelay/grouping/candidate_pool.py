"""The clients that are in no group yet, and which of them is furthest from a group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.distances import Distance
from fedrelay.grouping.profiles import Vectors

_ROUNDING = 1e-6


class CandidatePool:
    """The free clients. At most `limit` random ones are compared at a time; others replace those that are taken."""

    def __init__(self, vectors: Vectors, distance: Distance, limit: int, rng: np.random.Generator) -> None:
        self._vectors = distance.prepare(vectors)
        self._distance = distance
        self._limit = limit
        self._waiting = rng.permutation(len(vectors)) if len(vectors) > limit else np.arange(len(vectors))
        self._refill(np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return self._free_count + len(self._waiting)

    def random(self, rng: np.random.Generator) -> int:
        return int(rng.choice(self._clients[self._free]))

    def best(self, group: Vectors) -> int:
        """The client with the largest distance from a group; on a tie, the one with the lowest number.

        Single precision finds the clients that come close; double precision decides among them.
        """
        point = self._distance.prepare(group)
        rough = np.where(self._free, self._distance.formula(point.astype(np.float32), self._rough), -np.inf)
        highest = rough.max()
        close = np.flatnonzero(rough >= highest - _ROUNDING * (8 + len(point)) * max(1, abs(highest)))
        clients = self._clients[close]
        return int(clients[np.argmax(self._distance.formula(point, self._vectors[clients]))])

    def take(self, client: int) -> None:
        self._free[np.searchsorted(self._clients, client)] = False
        self._free_count -= 1
        if self._free_count < 0.75 * len(self._clients):
            self._refill(self._clients[self._free])

    def _refill(self, left: NDArray[np.int64]) -> None:
        """Drop the clients that were taken and add waiting ones."""
        new, self._waiting = np.split(self._waiting, [self._limit - len(left)])
        self._clients = np.sort(np.concatenate([left, new]))
        self._rough = self._vectors[self._clients].astype(np.float32)
        self._free = np.ones(len(self._clients), dtype=bool)
        self._free_count = len(self._clients)
