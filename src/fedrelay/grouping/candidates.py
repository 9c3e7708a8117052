"""The clients that no group has yet, and which of them complements a group best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.distances import Distance
from fedrelay.grouping.profiles import Vectors

_ROUNDING = 1e-6


class Candidates:
    """At most `most` clients are looked at at a time; of more, random ones, and others come after them."""

    def __init__(self, vectors: Vectors, distance: Distance, most: int, rng: np.random.Generator) -> None:
        self._vectors = distance.prepared(vectors)
        self._distance = distance
        self._most = most
        self._waiting = rng.permutation(len(vectors)) if len(vectors) > most else np.arange(len(vectors))
        self._refill(np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        """How many are left."""
        return self._looked_at + len(self._waiting)

    def random(self, rng: np.random.Generator) -> int:
        """Any of them."""
        return int(rng.choice(self._clients[self._free]))

    def best(self, group: Vectors) -> int:
        """The one with the highest distance from a group; among equals, the one with the lowest number.

        Single precision tells which come close, double precision which is best.
        """
        point = self._distance.prepared(group)
        rough = np.where(self._free, self._distance.formula(point.astype(np.float32), self._rough), -np.inf)
        highest = rough.max()
        close = np.flatnonzero(rough >= highest - _ROUNDING * (8 + len(point)) * max(1, abs(highest)))
        clients = self._clients[close]
        return int(clients[np.argmax(self._distance.formula(point, self._vectors[clients]))])

    def take(self, client: int) -> None:
        """Take one out."""
        self._free[np.searchsorted(self._clients, client)] = False
        self._looked_at -= 1
        if self._looked_at < 0.75 * len(self._clients):
            self._refill(self._clients[self._free])

    def _refill(self, left: NDArray[np.int64]) -> None:
        """Forget those taken and look at others in their place."""
        new, self._waiting = np.split(self._waiting, [self._most - len(left)])
        self._clients = np.sort(np.concatenate([left, new]))
        self._rough = self._vectors[self._clients].astype(np.float32)
        self._free = np.ones(len(self._clients), dtype=bool)
        self._looked_at = len(self._clients)
