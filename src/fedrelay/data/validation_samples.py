"""Validation samples: train samples that are kept for choosing a model, or the round to stop at.

Rule: every client keeps a share of its samples (`data.validation`), drawn class by class where each sample has a label.
Share × samples is rounded up or down at random, with the right mean, so that many small clients keep the share
together. At least one sample of a client stays for training. All kept samples form one validation set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedrelay.data.federation import Federation, class_counts, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.lazy_dataset_samples import join
from fedrelay.data.partition import Ints
from fedrelay.data.samples import SampleSource
from fedrelay.data.stratified_subset import stratified_indices
from fedrelay.errors import DataError
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class FederationWithValidationSamples(FederationWrapper):
    """A federation whose clients keep a share of their train samples for validation."""

    share: float
    seed: int

    def __post_init__(self) -> None:
        if not self.kept_counts.any():
            raise DataError(
                f"data.validation: no client of {self.inner.name!r} can keep {self.share:g} of its samples; raise the "
                "share, or use fewer clients"
            )

    @cached_property
    def kept_counts(self) -> Ints:
        """The number of samples that each client keeps for validation."""
        counts = self.inner.sample_counts()
        rounding = generator(self.seed, "validation").random(len(counts))
        kept = np.floor(self.share * counts + rounding).astype(np.int64)
        return np.minimum(kept, np.maximum(counts - 1, 0))

    def sample_count(self, client: int) -> int:
        return self.inner.sample_count(client) - int(self.kept_counts[client])

    def sample_counts(self) -> Ints:
        return self.inner.sample_counts() - self.kept_counts

    def train_samples(self, client: int) -> SampleSource:
        trained, _ = self._split(client)
        return self.inner.train_samples(client).select(trained)

    def histogram(self, client: int) -> Ints:
        return class_counts(self.train_samples(client).targets().numpy(), self.class_count)

    @cached_property
    def validation(self) -> SampleSource:
        """The validation samples of all clients, client by client."""
        clients = np.flatnonzero(self.kept_counts).tolist()
        return join([self.inner.train_samples(client).select(self._split(client)[1]) for client in clients])

    def place(self, row: int) -> str:
        """The client of a validation sample, and the sample's number among all train samples of that client."""
        ends = np.cumsum(self.kept_counts)
        client = int(np.searchsorted(ends, row, side="right"))
        _, kept = self._split(client)
        return f"client {client}, sample {kept[row - ends[client]]}"  # counted from the client's last one

    def fingerprint(self) -> str:
        return digest("validation", self.share, self.seed, self.inner.fingerprint())

    def _split(self, client: int) -> tuple[Ints, Ints]:
        """The indices of the samples that a client trains on, and of those that it keeps for validation."""
        if client not in self._splits:
            labels = self.inner.train_samples(client).targets().numpy()
            rng = generator(self.seed, "validation", client)
            kept = stratified_indices(labels, int(self.kept_counts[client]), rng)
            self._splits[client] = np.setdiff1d(np.arange(len(labels)), kept), kept
        return self._splits[client]

    @cached_property
    def _splits(self) -> dict[int, tuple[Ints, Ints]]:
        return {}


def with_validation(federation: Federation, share: float, seed: int) -> Federation:
    """The federation with a share of the train samples kept for validation; unchanged if 0."""
    return FederationWithValidationSamples(federation, share, seed) if share else federation


def validation_part(federation: Federation) -> FederationWithValidationSamples | None:
    """The part of a federation that keeps validation samples, inside wrappers, if there is one."""
    while isinstance(federation, FederationWrapper):
        if isinstance(federation, FederationWithValidationSamples):
            return federation
        federation = federation.inner
    return None
