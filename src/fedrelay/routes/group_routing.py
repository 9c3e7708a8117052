"""What all routes through groups have in common: how often, in which order and over whom a model visits the clients."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrelay.routes.base import PlanningContext
from fedrelay.routes.ordered_routing import OrderedRouting


class GroupRouting(OrderedRouting):
    """Base class of routes that lead through the clients of a group."""

    needs_groups: ClassVar[bool] = True
    loops: int = Field(1, ge=1, le=1000, description="how many times a model goes through its group in a round (E_S)")

    def clients_in_order(
        self, context: PlanningContext, round: int, group: int, members: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The clients of a group in the order of this round's route. The group's number is part of the random key."""
        return tuple(
            client
            for loop in range(self.loops)
            for client in self.in_order(context, members, context.order_rng(round, group, loop))
        )
