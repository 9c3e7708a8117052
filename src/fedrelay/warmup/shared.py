"""Shared-Raw: clients share a few of their samples, and the server begins with those.

Paper: the baseline of M. Arafeh et al., WFSL, 2025.

Rule: the server collects a share of every client's samples, trains the first model on them, and sends them to all;
from then on every client trains on its own samples and on those. Any method can follow.

Deviations: the paper trains the first model for 500 rounds; here they count among the rounds of the run, so there are
fewer by default. Clients count by all samples they train on.
"""

from __future__ import annotations

from pydantic import Field

from fedrelay.data.federation import Federation
from fedrelay.data.public import PublicFederation
from fedrelay.data.shared import SharedFederation
from fedrelay.ledger import Tally
from fedrelay.merge.last import Last
from fedrelay.routes.commons import Commons
from fedrelay.warmup.base import Phase, Warmup


class SharedRaw(Warmup):
    """Rounds on the shared samples alone, and shared samples at every client."""

    ratio: float = Field(0.05, ge=0, le=1, description="share of its samples that every client gives away")
    pretrain: int = Field(20, ge=0, description="rounds at the server, on the shared samples alone")

    def phases(self) -> tuple[Phase, ...]:
        """Training at the server."""
        return (Phase(self.pretrain, Commons(), (), Last()),) if self.pretrain and self.ratio else ()

    def share(self, federation: Federation, seed: int) -> Federation:
        """Everybody's samples with the shared ones."""
        return SharedFederation(federation, self.ratio, seed) if self.ratio else federation

    def traffic(self, federation: Federation) -> Tally:
        """Every client sends what it shares and gets everything back."""
        federation = federation.members if isinstance(federation, PublicFederation) else federation
        if not isinstance(federation, SharedFederation):
            return Tally()
        x, y = federation.pool
        sample = sum(part[0].numel() * part.element_size() for part in (x, y))
        holders = [client for client in range(federation.clients) if federation.members.size(client)]
        size = len(y) * sample * (1 + len(holders))
        return Tally(len(holders), len(holders), 0, size, {"samples": size})
