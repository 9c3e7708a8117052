"""The cycles of WFSL's warm-up: one model goes through the chosen clients, again and again.

Paper: M. Arafeh et al. WFSL, 2025 (see `warmup.wfsl`).

Rule: in every cycle the model of the last cycle goes through all chosen clients, through the server each time.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing
from fedrelay.routes.plan import RoundPlan, Route


class WarmupCycle(Routing):
    """One route through all clients that were chosen for the cycle."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """A single route."""
        return RoundPlan(round, (Route(context.chosen(round)),), handover="server")
