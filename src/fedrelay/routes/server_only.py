"""Training at the server, on samples that clients shared.

Paper: the Shared-Raw baseline of M. Arafeh et al., WFSL, 2025 (see `warmup.shared_raw`).

Rule: one model is trained on the shared samples, one local training per round. Nothing is transferred.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing
from fedrelay.routes.plan import RoundPlan, Route


class ServerOnly(Routing):
    """One route with one hop, at the server, which has the number after the last client."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        return RoundPlan(round, (Route((context.client_count,)),), handover="none")
