"""All data in one place: the federation of the centralised baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedrelay.data.federation import Samples, digest
from fedrelay.data.partition import Ints
from fedrelay.data.wrapper import FederationWrapper


@dataclass(frozen=True, repr=False)
class PooledFederation(FederationWrapper):
    """One client that holds everybody's samples: the centralised baseline."""

    @property
    def clients(self) -> int:
        """One."""
        return 1

    def size(self, client: int) -> int:
        """The number of all samples."""
        return int(self.sizes()[client])

    def sizes(self) -> Ints:
        """The number of all samples, as the one entry."""
        return np.array([self.members.sizes().sum()])

    def samples(self, client: int) -> Samples:
        """All samples, in the order of the members; put together once and kept."""
        return self._pool

    @cached_property
    def _pool(self) -> Samples:
        # Filled part by part: joining the parts at the end would take twice the memory.
        total = self.size(0)
        pool = Samples(*(values.new_empty((total, *values.shape[1:])) for values in self.members.samples(0)))
        start = 0
        for member in range(self.members.clients):
            part = self.members.samples(member)
            stop = start + len(part.y)
            pool.x[start:stop], pool.y[start:stop] = part.x, part.y
            start = stop
        return pool

    def histogram(self, client: int) -> Ints:
        """The histograms of all members together."""
        total = np.zeros(self.classes, dtype=np.int64)
        for member in range(self.members.clients):
            total += self.members.histogram(member)
        return total

    def fingerprint(self) -> str:
        """A digest that differs from the members' own."""
        return digest("pooled", self.members.fingerprint())
