"""FedAvg: every sampled client trains the global model on its own; ordinary federated learning.

Paper: B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-Efficient Learning of
Deep Networks from Decentralized Data. AISTATS 2017.

Rule: each round samples m = max(1, ⌊C·K⌋) of the K clients. Each of them is a route of one hop, from the global model
and back to the server.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class Singletons(Routing):
    """One route for each sampled client, with one hop."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        return RoundPlan(round, tuple(Route((client,)) for client in sample(context, round, context.client_count)))
