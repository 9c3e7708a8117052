"""FedAvg: every sampled client trains the global model on its own; ordinary federated learning.

Paper: B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of
Deep Networks from Decentralized Data. AISTATS 2017.

Rule: m = max(1, ⌊C·K⌋) clients, each a route of length one from the global model; the server takes the mean
weighted by samples.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class Singletons(Routing):
    """One route for each sampled client, with one hop."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        return RoundPlan(round, tuple(Route((client,)) for client in sample(context, round, context.clients)))
