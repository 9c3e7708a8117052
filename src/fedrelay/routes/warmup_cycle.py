"""The cycles of WFSL's warm-up: one model goes through the selected clients, cycle after cycle.

Paper: M. Arafeh et al. WFSL, 2025 (see `warmup.wfsl`).

Rule: in every cycle, the model of the last cycle goes through all selected clients, each time through the server.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing
from fedrelay.routes.plan import RoundPlan, Route


class WarmupCycle(Routing):
    """One route through all clients that were selected for the cycle."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        return RoundPlan(round, (Route(context.selected_clients(round)),), handover="server")
