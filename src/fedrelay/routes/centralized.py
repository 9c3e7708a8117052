"""Centralised training: the baseline with all samples in one place.

Paper: none; it is the usual baseline.

Rule: one model is trained on the samples of all clients, one local training per round. Nothing is transferred.

Deviations: the papers train with momentum 0.9 and a cosine schedule for 300 epochs. Here local training is the same as
for every other method, so that only the place of the data differs.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing
from fedrelay.routes.plan import RoundPlan, Route


class Centralized(Routing):
    """One route with one hop, at the client that has all samples."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        return RoundPlan(round, (Route((0,)),), handover="none")
