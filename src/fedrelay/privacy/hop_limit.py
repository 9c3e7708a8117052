"""A bound on the hops of each client: clients that have used it up are left out of later plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from fedrelay.routes.plan import RoundPlan, Route


class HopLimit:
    """The same number of hops for every client.

    What is left follows from the plans of all earlier rounds. The hops before one round are remembered, because rounds
    are usually planned one after another.

    Args:
        most: Hops of each client in all rounds together.
        planned: The plan of a round, without this bound.
        with_faults: The plan as it can be executed.
    """

    def __init__(
        self,
        most: int,
        planned: Callable[[int], RoundPlan],
        with_faults: Callable[[RoundPlan], RoundPlan] = lambda plan: plan,
    ) -> None:
        self.most = most
        self.planned, self.with_faults = planned, with_faults
        self._restart()

    def limit(self, plan: RoundPlan) -> RoundPlan:
        """The plan without hops beyond the budget; routes without clients are left out."""
        self._go_to(plan.round)
        routes, _ = self._cut(plan)
        return plan if routes == plan.routes else replace(plan, routes=routes)

    def exhausted(self, round: int) -> tuple[int, ...]:
        """The clients that are left out of this round for the first time."""
        self._go_to(round)
        _, left_out = self._cut(self.planned(round))
        return tuple(sorted(left_out - self.left_out))

    def _restart(self) -> None:
        self.round = 1
        self.hops: Counter[int] = Counter()
        self.left_out: set[int] = set()

    def _go_to(self, round: int) -> None:
        if round < self.round:
            self._restart()
        while self.round < round:
            plan = self.planned(self.round)
            routes, left_out = self._cut(plan)
            for route in self.with_faults(replace(plan, routes=routes)).routes:
                self.hops.update(route.clients)
            self.left_out |= left_out
            self.round += 1

    def _cut(self, plan: RoundPlan) -> tuple[tuple[Route, ...], set[int]]:
        """The routes without clients that have no budget left, and those clients."""
        hops, routes, left_out = self.hops.copy(), [], set()
        for route in plan.routes:
            allowed = []
            for index, client in enumerate(route.clients):
                if hops[client] < self.most:
                    hops[client] += 1
                    allowed.append(index)
                else:
                    left_out.add(client)
            if allowed:
                routes.append(route.only(allowed))
        return tuple(routes), left_out
