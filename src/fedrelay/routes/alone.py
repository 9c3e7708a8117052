"""Local: every client trains its own model on its own samples; the baseline without any federation.

Paper: none; it is the usual baseline that shows what a client gains by taking part.

Rule: each round samples m = max(1, ⌊C·K⌋) of the K clients, the same ones as FedAvg with this seed. Each of them goes
on training its own model, `loops` times per round; all models start with the same weights. Nothing is transferred.

Deviations: every client's model is evaluated on the shared test samples, and the scores are means over clients. The
final model of a run is the mean of all models, as in FedStar, because a run has one; it is not what is evaluated. With
nodes, models wait at the server between rounds.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class Alone(Routing):
    """One route for each sampled client, with its own model, that never leaves it."""

    model_per_client: ClassVar[bool] = True
    evaluates_own_models: ClassVar[bool] = True

    loops: int = Field(
        1, ge=1, le=1000, description="how many times a client trains in a round, such as the hops it has in SPFL"
    )

    @property
    def ever_merges(self) -> bool:
        return False

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        clients = sorted(sample(context, round, context.client_count))
        routes = tuple(Route((client,) * self.loops, client) for client in clients)
        return RoundPlan(round, routes, "none", merges=False)
