"""A bound on how often clients are visited: those who have had all their visits are taken out of later plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from fedrelay.routes.plan import RoundPlan, Route


class Allowance:
    """So many visits for every client. What is left follows from the plans before, whatever became of them."""

    def __init__(self, most: int, planned: Callable[[int], RoundPlan]) -> None:
        self.most = most
        self.planned = planned
        self.round = 1
        self.before: Counter[int] = Counter()
        """Visits before `round`: one entry is kept, because rounds are planned one after another."""

    def kept(self, plan: RoundPlan) -> RoundPlan:
        """The plan without visits that are one too many; routes that nobody is left on go."""
        if plan.round < self.round:
            self.round, self.before = 1, Counter()
        while self.round < plan.round:
            self._cut(self.planned(self.round), self.before)
            self.round += 1
        routes = self._cut(plan, self.before.copy())
        return plan if routes == plan.routes else replace(plan, routes=routes)

    def _cut(self, plan: RoundPlan, visits: Counter[int]) -> tuple[Route, ...]:
        """What is left of the routes; the visits are counted."""
        routes = []
        for route in plan.routes:
            allowed = []
            for client in route.clients:
                if visits[client] < self.most:
                    visits[client] += 1
                    allowed.append(client)
            if allowed:
                routes.append(replace(route, clients=tuple(allowed)))
        return tuple(routes)
