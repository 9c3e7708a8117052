"""Shared samples: every client shares a few of its samples with all others.

Paper: the Shared-Raw baseline of M. Arafeh et al., WFSL, 2025.

Rule: the server collects a share of every client's samples, at least one. Every client then has its own samples and all
that others shared.

Deviations: none. A client does not get its own shared samples twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedrelay.data.federation import class_counts, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.lazy_dataset_samples import join
from fedrelay.data.partition import Ints
from fedrelay.data.samples import SampleSource
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class FederationWithSharedSamples(FederationWrapper):
    """Clients that also have the samples that others share. Client number `clients` is the server, with only the
    pool."""

    ratio: float
    seed: int

    def sample_count(self, client: int) -> int:
        if client == self.client_count:
            return self.pool.size
        own = self.inner.sample_count(client)
        return own + self.pool.size - len(self.shared_indices(client)) if own else 0

    def sample_counts(self) -> Ints:
        return np.array([self.sample_count(client) for client in range(self.client_count)])

    def train_samples(self, client: int) -> SampleSource:
        """A client's own samples, then the shared samples of others."""
        if client == self.client_count:
            return self.pool
        return join([self.inner.train_samples(client), self.pool.select(np.flatnonzero(self._owners != client))])

    def histogram(self, client: int) -> Ints:
        return class_counts(self.train_samples(client).targets().numpy(), self.class_count)

    def fingerprint(self) -> str:
        return digest("shared", self.inner.fingerprint(), f"{self.ratio}", f"{self.seed}")

    def shared_indices(self, client: int) -> Ints:
        """The indices of the samples that a client shares."""
        own = self.inner.sample_count(client)
        count = max(1, int(self.ratio * own + 1e-9)) if own and self.ratio else 0
        return np.sort(generator(self.seed, "shared", client).choice(own, count, replace=False))

    @cached_property
    def pool(self) -> SampleSource:
        """All shared samples, client by client."""
        clients = range(self.client_count)
        return join([self.inner.train_samples(client).select(self.shared_indices(client)) for client in clients])

    @cached_property
    def _owners(self) -> Ints:
        counts = [len(self.shared_indices(client)) for client in range(self.client_count)]
        return np.repeat(np.arange(self.client_count), counts)
