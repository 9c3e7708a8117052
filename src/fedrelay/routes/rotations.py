"""SPFL: every model visits every client that takes part, each starting from another one.

Paper: H. Liang et al. SPFL: sequential and parallel federated learning. NeurIPS 2025.

Rule: π is an order of all M clients. Route n visits π_n, π_{n+1}, …, π_M, π_1, …, π_{n−1}, all from the global model,
and the server takes the plain mean. At every hop the M models are at M different clients.

Deviations: none. With fraction C < 1, max(1, ⌊C·M⌋) clients are sampled each round and the rotations go through those.
`orders: random` gives every route an order of its own, `reshuffle` draws π afresh every round. M counts the clients
that hold samples: a rotation that began at one without any would be another one once more, and count twice.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedrelay.routes.base import PlanningContext, Routing, sample, sampled_count
from fedrelay.routes.plan import RoundPlan, Route


class Rotations(Routing):
    """As many routes as clients, each through all of them."""

    orders: Literal["rotations", "random"] = Field(
        "rotations", description="one order, started at every client, or an order of its own for each route"
    )
    reshuffle: bool = Field(False, description="draw the order afresh every round")

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """One route for each client that takes part."""
        order = self._order(context, round)
        if self.orders == "random":
            key = round if self.reshuffle else 0
            orders = [
                tuple(context.rng("order", key, route).permutation(order).tolist()) for route in range(len(order))
            ]
        else:
            orders = [order[start:] + order[:start] for start in range(len(order))]
        return RoundPlan(round, tuple(Route(clients) for clients in orders))

    def _order(self, context: PlanningContext, round: int) -> tuple[int, ...]:
        """Those who take part and hold samples, in the order of the first route."""
        if sampled_count(context.clients, context.fraction) == context.clients and not self.reshuffle:
            order = tuple(context.rng("rotation").permutation(context.clients).tolist())
        else:
            order = sample(context, round, context.clients)
        return tuple(client for client in order if context.holds(client))
