"""All samples at one client, for the centralised baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedrelay.data.federation import digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.lazy_dataset_samples import join
from fedrelay.data.partition import Ints
from fedrelay.data.samples import SampleSource


@dataclass(frozen=True, repr=False)
class PooledFederation(FederationWrapper):
    """A federation with one client that has the samples of all clients."""

    @property
    def client_count(self) -> int:
        return 1

    def sample_count(self, client: int) -> int:
        return int(self.sample_counts()[client])

    def sample_counts(self) -> Ints:
        return np.array([self.inner.sample_counts().sum()])

    def train_samples(self, client: int) -> SampleSource:
        return self._pool

    @cached_property
    def _pool(self) -> SampleSource:
        if not self.inner.in_memory:
            return join([self.inner.train_samples(client) for client in range(self.inner.client_count)])
        # Filled in place: concatenating at the end would take twice the memory.
        total = self.sample_count(0)
        first = self.inner.train_samples(0).load()
        pool = first.map(lambda values: values.new_empty((total, *values.shape[1:])))
        start = 0
        for client in range(self.inner.client_count):
            part = self.inner.train_samples(client).load()
            stop = start + len(part.y)
            for whole, values in zip(pool.tensors, part.tensors, strict=True):
                whole[start:stop] = values
            start = stop
        return pool

    def histogram(self, client: int) -> Ints:
        total = np.zeros(self.class_count, dtype=np.int64)
        for client in range(self.inner.client_count):
            total += self.inner.histogram(client)
        return total

    def fingerprint(self) -> str:
        return digest("pooled", self.inner.fingerprint())
