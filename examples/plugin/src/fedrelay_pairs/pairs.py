"""Pairs: every model visits two clients, then the models are averaged.

Rule: the sampled clients are joined in pairs in their random order. With an odd number, the last client trains alone.
"""

from pydantic import Field

import fedrelay as fr


class Pairs(fr.Routing):
    """One route for every pair of sampled clients."""

    loops: int = Field(1, ge=1, description="how often a model visits its pair")

    def plan(self, context: fr.PlanningContext, round: int) -> fr.RoundPlan:
        clients = fr.sample(context, round, context.client_count)
        pairs = [clients[start : start + 2] for start in range(0, len(clients), 2)]
        return fr.RoundPlan(round, tuple(fr.Route(pair * self.loops) for pair in pairs))


fr.register("pairs", summary="models visit two clients each, then are averaged", route=Pairs)
