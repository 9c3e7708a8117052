"""SPFL: every model visits every participating client, each starting at another one.

Paper: H. Liang et al. SPFL: sequential and parallel federated learning. NeurIPS 2025.

Rule: π is an order of all M clients. Route n visits π_n, π_{n+1}, …, π_M, π_1, …, π_{n−1}; all routes start with the
global model. At every hop the M models are at M different clients.

Deviations: none. With fraction C < 1, max(1, ⌊C·M⌋) clients are sampled each round and the rotations go through those.
`orders: random` gives every route its own order, `reshuffle` draws a new π every round. M counts only clients that have
samples: a rotation that started at a client without samples would equal another rotation, which would count twice.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedrelay.routes.base import HANDOVER_HELP, ChainHandover, PlanningContext, Routing, sample, sampled_count
from fedrelay.routes.plan import RoundPlan, Route


class Rotations(Routing):
    """As many routes as clients, each through all of them."""

    orders: Literal["rotations", "random"] = Field(
        "rotations",
        description="rotations (one order, started at each client) or random (each route has its own order)",
    )
    reshuffle: bool = Field(False, description="draw a new order every round")
    handover: ChainHandover = Field("direct", description=HANDOVER_HELP)

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        order = self._order(context, round)
        if self.orders == "random":
            key = round if self.reshuffle else 0
            routes = [
                tuple(context.rng("order", key, route).permutation(order).tolist()) for route in range(len(order))
            ]
        else:
            routes = [order[start:] + order[:start] for start in range(len(order))]
        return RoundPlan(round, tuple(map(Route, routes)), self.handover)

    def _order(self, context: PlanningContext, round: int) -> tuple[int, ...]:
        """The participating clients that have samples, in the order of the first route."""
        if sampled_count(context.client_count, context.fraction) == context.client_count and not self.reshuffle:
            order = tuple(context.rng("rotation").permutation(context.client_count).tolist())
        else:
            order = sample(context, round, context.client_count)
        return tuple(client for client in order if context.has_samples(client))
