"""FedSeq: models travel through groups of clients ("superclients"), then the groups are averaged.

Paper: R. Zaccone, A. Rizzardi, D. Caldarola, M. Ciccone, B. Caputo. Speeding up Heterogeneous Federated
Learning with Sequentially Trained Superclients. ICPR 2022.

Rule: clients are grouped once. Each round G = max(1, ⌊C·N_S⌋) groups are sampled; a copy of the global model
travels through each of them, `loops` times, in an order drawn afresh for every loop. The server takes the mean of
the groups' outputs weighted by their samples.

Deviations: none in the route. Groups are formed at random unless another grouping is named. With `order: fixed` and
`handover: server` it is the NaiveGSP of S. Zeng et al., FedGSP, DASFAA 2022: every model meets the clients of a group
always in the same order, and a manager passes it on.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class GroupRouting(Routing):
    """How a model goes through the clients of a group."""

    needs_groups: ClassVar[bool] = True
    loops: int = Field(1, ge=1, le=1000, description="how often a model goes through its group in a round (E_S)")
    order: Literal["random", "fixed"] = Field(
        "random", description="clients in a new order every time, or always the same"
    )
    handover: Literal["direct", "server"] = Field(
        "direct", description="clients hand the model to each other, or it goes through the server every time"
    )

    def clients_of(self, context: PlanningContext, round: int, group: int, members: tuple[int, ...]) -> tuple[int, ...]:
        """The hops of a route through one group; the number of the group keys their order."""
        if self.order == "fixed":
            return members * self.loops
        orders = (context.rng("order", round, group, loop).permutation(members) for loop in range(self.loops))
        return tuple(int(client) for order in orders for client in order)


class Chains(GroupRouting):
    """Each route goes through the clients of one sampled group."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """One route for each sampled group."""
        groups = sample(context, round, len(context.groups))
        routes = (Route(self.clients_of(context, round, group, context.groups[group])) for group in groups)
        return RoundPlan(round, tuple(routes), self.handover)
