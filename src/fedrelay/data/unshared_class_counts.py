"""Clients whose owners do not say how many samples of each class they have."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.partition import Ints
from fedrelay.errors import NotSharedError

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class MeanWhereNotShared(FederationWrapper):
    """A federation in which clients that do not share their class counts seem to have the mean of those that do.

    To a grouping by classes they are then neither near to some clients nor far from others: what is shared is used,
    and nothing else is asked for. If nobody shares, all clients look alike.
    """

    def histogram(self, client: int) -> Ints:
        try:
            return self.inner.histogram(client)
        except NotSharedError:
            return self._mean

    @cached_property
    def _mean(self) -> Ints:
        shared = [self.inner.histogram(client) for client in sharing_clients(self.inner, range(self.client_count))]
        if not shared:
            return np.zeros(self.class_count, dtype=np.int64)
        mean: Ints = np.rint(np.mean(shared, axis=0)).astype(np.int64)
        return mean


def sharing_clients(federation: Federation, clients: Sequence[int]) -> list[int]:
    """Those of some clients that share their class counts."""

    def shares(client: int) -> bool:
        try:
            federation.histogram(client)
        except NotSharedError:
            return False
        return True

    return [client for client in clients if shares(client)]


def content_with_what_is_shared(federation: Federation, method: str) -> Federation:
    """The federation for a grouping that nobody asked for by name; says how many clients do not share."""
    clients = federation.client_count
    missing = clients - len(sharing_clients(federation, range(clients)))
    if missing:
        log.warning(
            "%d of %d nodes do not share how many samples of each class they have: to the groups of %s they look like "
            "the mean of the others (nodes share with --share-histogram, with noise by --histogram-epsilon)",
            missing,
            clients,
            method,
        )
    return MeanWhereNotShared(federation)
