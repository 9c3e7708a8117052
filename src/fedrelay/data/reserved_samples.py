"""The base class of federations whose clients reserve some of their samples for something else than training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import class_counts, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.partition import Ints
from fedrelay.data.samples import SampleSource
from fedrelay.data.stratified_subset import stratified_indices
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class FederationWithReservedSamples(FederationWrapper, ABC):
    """A federation whose clients reserve a share of their samples, drawn class by class where each sample has a label.

    A subclass says how many each client reserves (`reserved_counts`), and may draw them in its own way (`divided`).
    """

    purpose: ClassVar[str]
    """Names the random draws and the fingerprint."""

    share: float
    seed: int

    @cached_property
    @abstractmethod
    def reserved_counts(self) -> Ints:
        """The number of samples that each client reserves."""

    def sample_count(self, client: int) -> int:
        return self.inner.sample_count(client) - int(self.reserved_counts[client])

    def sample_counts(self) -> Ints:
        return self.inner.sample_counts() - self.reserved_counts

    def train_samples(self, client: int) -> SampleSource:
        trained, _ = self._split(client)
        return self.inner.train_samples(client).select(trained)

    def reserved_samples(self, client: int) -> SampleSource:
        """The samples that a client reserves."""
        return self.inner.train_samples(client).select(self.reserved_rows(client))

    def reserved_rows(self, client: int) -> Ints:
        """The numbers of the reserved samples among all samples of a client, ascending."""
        return self._split(client)[1]

    def histogram(self, client: int) -> Ints:
        return class_counts(self.train_samples(client).targets().numpy(), self.class_count)

    def divided(self, labels: NDArray[Any], client: int) -> tuple[Ints, Ints]:
        """The indices of the samples that a client with these targets trains on, and of those that it reserves."""
        rng = generator(self.seed, self.purpose, client)
        reserved = stratified_indices(labels, int(self.reserved_counts[client]), rng)
        return np.setdiff1d(np.arange(len(labels)), reserved), reserved

    def fingerprint(self) -> str:
        return digest(self.purpose, self.share, self.seed, self.inner.fingerprint())

    def _split(self, client: int) -> tuple[Ints, Ints]:
        """The indices of the samples that a client trains on, and of those that it reserves."""
        if client not in self._splits:
            self._splits[client] = self.divided(self.inner.train_samples(client).targets().numpy(), client)
        return self._splits[client]

    @cached_property
    def _splits(self) -> dict[int, tuple[Ints, Ints]]:
        return {}
