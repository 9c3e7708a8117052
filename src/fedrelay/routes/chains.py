"""FedSeq: one model travels through each sampled group of clients ("superclient"), then these models are merged.

Paper: R. Zaccone, A. Rizzardi, D. Caldarola, M. Ciccone, B. Caputo. Speeding up Heterogeneous Federated
Learning with Sequentially Trained Superclients. ICPR 2022.

Rule: clients are grouped once. Each round samples G = max(1, ⌊C·N_S⌋) groups. A copy of the global model goes through
the clients of each sampled group, `loops` times, in a new random order each time, and back to the server.

Deviations: none in the route. Groups are random unless another grouping is set. With `order: fixed` and
`handover: server` it is the NaiveGSP of S. Zeng et al., FedGSP, DASFAA 2022: a model visits the clients of a group
always in the same order, and a manager passes it on.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class GroupRouting(Routing):
    """Base class of routes that lead through the clients of a group."""

    needs_groups: ClassVar[bool] = True
    loops: int = Field(1, ge=1, le=1000, description="how many times a model goes through its group in a round (E_S)")
    order: Literal["random", "fixed"] = Field(
        "random", description="order of the clients in a group: random (new each time) or fixed"
    )
    handover: Literal["direct", "server"] = Field(
        "direct", description="how a model gets to the next client: direct, or through the server"
    )

    def clients_in_order(
        self, context: PlanningContext, round: int, group: int, members: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The clients of a group in the order of this round's route. The group's number is part of the random key."""
        if self.order == "fixed":
            return members * self.loops
        orders = (context.rng("order", round, group, loop).permutation(members) for loop in range(self.loops))
        return tuple(int(client) for order in orders for client in order)


class Chains(GroupRouting):
    """One route for each sampled group, through its clients."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        groups = sample(context, round, len(context.groups))
        routes = (Route(self.clients_in_order(context, round, group, context.groups[group])) for group in groups)
        return RoundPlan(round, tuple(routes), self.handover)
