"""Convoys: which routes of a round travel side by side as one stack of models.

Which routes these are depends on the plan, the data and `engine.lanes` alone, never on the number of workers: a
stack of another size may round differently, and results must be the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from fedrelay.routes.plan import Hop, RoundPlan


@dataclass(frozen=True)
class RouteBatch:
    """Some routes of a round, the longest first."""

    round: int
    routes: tuple[tuple[int, tuple[int, ...]], ...]
    """(number of the route in the plan, clients)."""

    attempt: int = 0

    def waves(self) -> Iterator[list[Hop]]:
        """Hops in wavefront order: turn j of every route before turn j + 1 of any."""
        for index in range(len(self.routes[0][1])):
            yield self.hops_at({number: index for number, clients in self.routes if index < len(clients)})

    def hops_at(self, places: Mapping[int, int]) -> list[Hop]:
        """One hop of each route that has one now; `places` gives its index by the number of the route."""
        return [
            Hop(self.round, number, places[number], clients[places[number]], self.attempt)
            for number, clients in self.routes
            if number in places
        ]


def batch_routes(plan: RoundPlan, samples: Callable[[int], int], lanes: int, attempt: int = 0) -> list[RouteBatch]:
    """Deal out the routes to as few convoys as `lanes` allows, alike routes together, the longest convoy first."""

    def work(number: int) -> tuple[int, int, int]:
        clients = plan.routes[number].clients
        return -len(clients), -sum(samples(client) for client in clients), number

    travelling = [number for number, route in enumerate(plan.routes) if route.clients]
    numbers = iter(sorted(travelling, key=work))
    count = -(-len(travelling) // lanes)
    # The larger convoys first: a worker that ends up alone with the last one should have a short way.
    sizes = [len(travelling) // count + (part < len(travelling) % count) for part in range(count)]
    return [
        RouteBatch(
            plan.round,
            tuple((number, plan.routes[number].clients) for number in islice(numbers, size)),
            attempt,
        )
        for size in sizes
    ]
