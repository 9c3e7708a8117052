"""Validation samples: train samples that are kept for choosing a model, or the round to stop at.

Rule: every client keeps a share of its samples (`data.validation`), drawn class by class where each sample has a label.
Share × samples is rounded up or down at random, with the right mean, so that many small clients keep the share
together. At least one sample of a client stays for training. All kept samples form one validation set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedrelay.data.federation import Federation
from fedrelay.data.lazy_dataset_samples import join
from fedrelay.data.partition import Ints
from fedrelay.data.reserved_samples import FederationWithReservedSamples
from fedrelay.data.samples import SampleSource
from fedrelay.errors import DataError
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class FederationWithValidationSamples(FederationWithReservedSamples):
    """A federation whose clients keep a share of their train samples for validation."""

    purpose: ClassVar[str] = "validation"

    def __post_init__(self) -> None:
        if not self.reserved_counts.any():
            raise DataError(
                f"data.validation: no client of {self.inner.name!r} can keep {self.share:g} of its samples; raise the "
                "share, or use fewer clients"
            )

    @cached_property
    def reserved_counts(self) -> Ints:
        """The number of samples that each client keeps for validation."""
        counts = self.inner.sample_counts()
        rounding = generator(self.seed, "validation").random(len(counts))
        kept = np.floor(self.share * counts + rounding).astype(np.int64)
        return np.minimum(kept, np.maximum(counts - 1, 0))

    @cached_property
    def validation(self) -> SampleSource:
        """The validation samples of all clients, client by client."""
        return join([self.reserved_samples(client) for client in np.flatnonzero(self.reserved_counts).tolist()])

    def place(self, row: int) -> str:
        """The client of a validation sample, and the sample's number among all train samples of that client."""
        ends = np.cumsum(self.reserved_counts)
        client = int(np.searchsorted(ends, row, side="right"))
        kept = self.reserved_rows(client)
        return f"client {client}, sample {kept[row - ends[client]]}"  # counted from the client's last one


def with_validation(federation: Federation, share: float, seed: int) -> Federation:
    """The federation with a share of the train samples kept for validation; unchanged if 0."""
    return FederationWithValidationSamples(federation, share, seed) if share else federation
