"""Held-out samples of each client: models are evaluated on them client by client, and never trained on them.

Rule: every client holds out a share of its samples (`data.holdout`), chosen as nodes do it (`held_out_rows.py`). The
choice depends on the seed and the client's samples alone, so all methods of a comparison hold out the same samples.
Without `data.holdout`, the held-out samples of a client are its own test samples, where the data say whose each test
sample is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.client_names import known_client_names
from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.held_out_rows import held_out_count, held_out_rows
from fedrelay.data.partition import Ints
from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.data.reserved_samples import FederationWithReservedSamples
from fedrelay.data.sample_names import sample_names
from fedrelay.data.samples import SampleSource
from fedrelay.errors import DataError


@dataclass(frozen=True, repr=False)
class FederationWithHoldout(FederationWithReservedSamples):
    """A federation whose clients hold out a share of their samples."""

    purpose: ClassVar[str] = "holdout"

    def __post_init__(self) -> None:
        if not self.reserved_counts.any():
            raise DataError(
                f"data.holdout: no client of {self.inner.name!r} has two samples, one to train on and one to hold out; "
                "use fewer clients"
            )

    @cached_property
    def reserved_counts(self) -> Ints:
        """The number of samples that each client holds out."""
        return np.array([held_out_count(count, self.share) for count in self.inner.sample_counts().tolist()], np.int64)

    def divided(self, labels: NDArray[Any], client: int) -> tuple[Ints, Ints]:
        return held_out_rows(len(labels), self.share, self.seed, labels=labels)


def with_holdout(federation: Federation, share: float, seed: int) -> Federation:
    """The federation with a share of each client's samples held out; unchanged if 0."""
    return FederationWithHoldout(federation, share, seed) if share else federation


def without_pooling(federation: Federation) -> Federation:
    """The clients of a federation, also where their samples are pooled in one place."""
    pooled = find_wrapper(federation, PooledFederation)
    return federation if pooled is None else pooled.inner


@dataclass(frozen=True)
class HeldOutSamples:
    """The held-out samples of every client."""

    federation: Federation

    def of(self, client: int) -> SampleSource:
        """The held-out samples of a client; there may be none."""
        if self._part is not None:
            return self._part.reserved_samples(client)
        return self.federation.test.select(self._test_rows[client])

    @cached_property
    def counts(self) -> list[int]:
        """The number of held-out samples of every client."""
        if self._part is not None:
            found: list[int] = self._part.reserved_counts.tolist()
            return found
        return [len(rows) for rows in self._test_rows]

    @cached_property
    def _part(self) -> FederationWithHoldout | None:
        return find_wrapper(self.federation, FederationWithHoldout)

    @cached_property
    def _test_rows(self) -> Sequence[NDArray[np.int64]]:
        """The test samples of every client."""
        clients = {name: client for client, name in enumerate(known_client_names(self.federation) or ())}
        owner = np.array([clients.get(str(name), -1) for name in sample_names(self.federation)["client"]])
        by_owner = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[by_owner], np.arange(len(clients) + 1))
        return [by_owner[ends[client] : ends[client + 1]] for client in range(len(clients))]


def held_out_samples(federation: Federation) -> HeldOutSamples | None:
    """The held-out samples of all clients; None where no client has any of its own."""
    found = HeldOutSamples(federation)
    if find_wrapper(federation, FederationWithHoldout) is not None:
        return found
    known = known_client_names(federation) is not None and "client" in sample_names(federation)
    return found if known and any(found.counts) else None
