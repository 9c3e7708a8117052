"""Training at the server, on samples that are shared by all.

Paper: the Shared-Raw baseline of M. Arafeh et al., WFSL, 2025 (see `warmup.shared`).

Rule: one model is trained on the shared samples, one local pass a round. Nothing is transferred.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing
from fedrelay.routes.plan import RoundPlan, Route


class ServerTraining(Routing):
    """One trip visits the holder of what is shared, who comes after all clients."""

    def plan(self, scene: PlanningContext, round: int) -> RoundPlan:
        """A single hop that costs no transfer."""
        return RoundPlan(round, (Route((scene.clients,)),), handover="none")
