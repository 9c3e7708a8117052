"""Shared-Raw: clients share a few of their samples, and the server begins with those.

Paper: the baseline of M. Arafeh et al., WFSL, 2025.

Rule: the server collects a share of every client's samples, trains the first model on them, and sends them to all;
from then on every client trains on its own samples and on those. Any method can follow.

Deviations: the paper trains the first model for 500 rounds; here they count among the rounds of the run, so there are
fewer by default. There clients count by all samples they train on, n_k + |G|; here by their own, n_k, unless `weights`
says all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.cost.ledger import SetupStep, SetupTransfer
from fedrelay.data.federation import Federation
from fedrelay.data.shared import SharedFederation
from fedrelay.data.wrapper import FederationWrapper
from fedrelay.local.arrival import Arrival
from fedrelay.merge.last import Last
from fedrelay.routes.server_training import ServerTraining
from fedrelay.warmup.base import Phase, Warmup


class SharedRaw(Warmup):
    """Rounds on the shared samples alone, and shared samples at every client."""

    shares_samples: ClassVar[bool] = True
    length: ClassVar[str] = "pretrain"

    ratio: float = Field(0.05, ge=0, le=1, description="share of its samples that every client gives away")
    weights: Literal["own", "all"] = Field(
        "own", description="how much a client counts: by its own samples, or by all it trains on, own and shared"
    )
    pretrain: int = Field(20, ge=0, description="rounds at the server, on the shared samples alone")

    def phases(self) -> tuple[Phase, ...]:
        """Training at the server."""
        return (Phase(self.pretrain, ServerTraining(), (), Last()),) if self.pretrain and self.ratio else ()

    def share(self, federation: Federation, seed: int) -> Federation:
        """Everybody's samples with the shared ones."""
        return SharedFederation(federation, self.ratio, seed) if self.ratio else federation

    def setup_steps(self, federation: Federation) -> tuple[SetupStep, ...]:
        """Every client sends what it shares, then gets everything back."""
        shared = _shared(federation)
        if shared is None:
            return ()
        x, y = shared.pool
        sample = sum(part[0].numel() * part.element_size() for part in (x, y))
        holders = [client for client in range(shared.clients) if shared.members.size(client)]
        given = [len(shared.shared_indices(client)) * sample for client in holders]
        return (
            SetupStep(holders, up=SetupTransfer("samples", given)),
            SetupStep(holders, down=SetupTransfer("samples", len(y) * sample)),
        )

    def counted(self, arrival: Arrival, federation: Federation) -> Arrival:
        """By clients' own samples, if told so; the server's hops count by what is shared."""
        shared = _shared(federation)
        if shared is None or self.weights == "all":
            return arrival
        hops = zip(arrival.clients, arrival.hops, strict=True)
        counted = (
            replace(hop, samples=shared.members.size(client)) if client < shared.clients and hop.samples else hop
            for client, hop in hops
        )
        return replace(arrival, hops=tuple(counted))


def _shared(federation: Federation) -> SharedFederation | None:
    """The shared samples, which a public set and an attack may lie over."""
    while isinstance(federation, FederationWrapper) and not isinstance(federation, SharedFederation):
        federation = federation.members
    return federation if isinstance(federation, SharedFederation) else None
