"""Centralised training: the upper bound that federated methods are measured against.

Rule: all samples lie in one place and one model is trained on them, one local pass per round. Nothing is
transferred.

Deviations: the papers train with momentum 0.9 and a cosine schedule for 300 epochs; here the local pass is the
same as for every other method, so that the comparison is about where the data lie and nothing else.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing
from fedrelay.routes.plan import RoundPlan, Route


class Pooled(Routing):
    """One route with one hop, at the holder of all data."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """A single hop that costs no transfer."""
        return RoundPlan(round, (Route((0,)),), handover="none")
