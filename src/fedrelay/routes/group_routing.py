"""What all routes through groups have in common: how often, in which order and over whom a model visits the clients."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.routes.base import HANDOVER_HELP, ChainHandover, PlanningContext, Routing


class GroupRouting(Routing):
    """Base class of routes that lead through the clients of a group."""

    needs_groups: ClassVar[bool] = True
    loops: int = Field(1, ge=1, le=1000, description="how many times a model goes through its group in a round (E_S)")
    order: Literal["random", "fixed"] = Field(
        "random", description="order of the clients in a group: random (new each time) or fixed"
    )
    handover: ChainHandover = Field("direct", description=HANDOVER_HELP)

    def clients_in_order(
        self, context: PlanningContext, round: int, group: int, members: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The clients of a group in the order of this round's route. The group's number is part of the random key."""
        if self.order == "fixed":
            return members * self.loops
        orders = (context.rng("order", round, group, loop).permutation(members) for loop in range(self.loops))
        return tuple(int(client) for order in orders for client in order)
