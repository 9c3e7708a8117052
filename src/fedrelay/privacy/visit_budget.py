"""A bound on how often clients are visited: those who have had all their visits are taken out of later plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from fedrelay.routes.plan import RoundPlan, Route


class VisitBudget:
    """So many visits for every client. What is left follows from the plans before and what the weather made of them."""

    def __init__(
        self,
        most: int,
        planned: Callable[[int], RoundPlan],
        with_faults: Callable[[RoundPlan], RoundPlan] = lambda plan: plan,
    ) -> None:
        self.most = most
        self.planned, self.with_faults = planned, with_faults
        self._begin()

    def kept(self, plan: RoundPlan) -> RoundPlan:
        """The plan without visits that are one too many; routes that nobody is left on go."""
        self._go_to(plan.round)
        routes, _ = self._cut(plan)
        return plan if routes == plan.routes else replace(plan, routes=routes)

    def spent(self, round: int) -> tuple[int, ...]:
        """The clients that are passed over in this round and were not before."""
        self._go_to(round)
        _, left_out = self._cut(self.planned(round))
        return tuple(sorted(left_out - self.shut_out))

    def _begin(self) -> None:
        """Before the first round. What was before one round is remembered, because they come one after another."""
        self.round = 1
        self.visits: Counter[int] = Counter()
        self.shut_out: set[int] = set()

    def _go_to(self, round: int) -> None:
        if round < self.round:
            self._begin()
        while self.round < round:
            plan = self.planned(self.round)
            routes, left_out = self._cut(plan)
            for route in self.with_faults(replace(plan, routes=routes)).routes:
                self.visits.update(route.clients)
            self.shut_out |= left_out
            self.round += 1

    def _cut(self, plan: RoundPlan) -> tuple[tuple[Route, ...], set[int]]:
        """What is left of the routes, and who is left out of them."""
        visits, routes, left_out = self.visits.copy(), [], set()
        for route in plan.routes:
            allowed = []
            for index, client in enumerate(route.clients):
                if visits[client] < self.most:
                    visits[client] += 1
                    allowed.append(index)
                else:
                    left_out.add(client)
            if allowed:
                routes.append(route.only(allowed))
        return tuple(routes), left_out
