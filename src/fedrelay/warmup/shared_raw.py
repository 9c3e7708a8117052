"""Shared-Raw: clients share a few of their samples, and the server trains the first model on them.

Paper: the baseline of M. Arafeh et al., WFSL, 2025.

Rule: the server collects a share of every client's samples, trains the first model on them, and sends them to all
clients. Then every client trains on its own samples and the shared ones. Any method can follow.

Deviations: the paper trains the first model for 500 rounds. Here they count among the rounds of the run, so the default
is smaller. The paper weights clients by all samples they train on, n_k + |G|; here by their own, n_k, unless `weights`
is all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.cost.ledger import SetupCost, SetupTransfer
from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.shared_samples import FederationWithSharedSamples
from fedrelay.merge.last_route import LastRoute
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.server_only import ServerOnly
from fedrelay.warmup.base import Phase, Warmup


class SharedRaw(Warmup):
    """Rounds at the server on the shared samples, which all clients then have too."""

    shares_samples: ClassVar[bool] = True
    length: ClassVar[str] = "pretrain"

    ratio: float = Field(0.05, ge=0, le=1, description="share of its samples that every client shares")
    weights: Literal["own", "all"] = Field(
        "own", description="weight of a client in merges: its own samples, or all (own and shared)"
    )
    pretrain: int = Field(20, ge=0, description="number of rounds at the server, on the shared samples")

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(self.pretrain, ServerOnly(), (), LastRoute()),) if self.pretrain and self.ratio else ()

    def with_samples_shared_by_clients(self, federation: Federation, seed: int) -> Federation:
        return FederationWithSharedSamples(federation, self.ratio, seed) if self.ratio else federation

    def setup_costs(self, federation: Federation) -> tuple[SetupCost, ...]:
        """Every client sends the samples it shares, then receives all shared samples."""
        shared = _shared(federation)
        if shared is None:
            return ()
        first = next(shared.pool.pieces(range(1), 1, 0))
        sample = sum(part[0].numel() * part.element_size() for part in first.tensors)
        clients = [client for client in range(shared.client_count) if shared.inner.sample_count(client)]
        sent = [len(shared.shared_indices(client)) * sample for client in clients]
        return (
            SetupCost(clients, up=SetupTransfer("samples", sent)),
            SetupCost(clients, down=SetupTransfer("samples", shared.pool.size * sample)),
        )

    def arrival_with_sample_count_for_merge(self, arrival: Arrival, federation: Federation) -> Arrival:
        """Weight clients by their own samples with `weights: own`; the server's hops keep their weight."""
        shared = _shared(federation)
        if shared is None or self.weights == "all":
            return arrival
        hops = zip(arrival.clients, arrival.hops, strict=True)
        adjusted = (
            replace(hop, samples=shared.inner.sample_count(client))
            if client < shared.client_count and hop.samples
            else hop
            for client, hop in hops
        )
        return replace(arrival, hops=tuple(adjusted))


def _shared(federation: Federation) -> FederationWithSharedSamples | None:
    """The shared federation inside wrappers such as a public set or an attack."""
    return find_wrapper(federation, FederationWithSharedSamples)
