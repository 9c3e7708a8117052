"""Route batches: which routes of a round are trained together as batched models.

This depends on the plan, the data and `engine.lanes` alone, never on the number of workers: a batch of another size may
round differently, and results must be the same bits everywhere.
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
        """All hops in waves: hop j of every route comes before hop j + 1 of any."""
        for index in range(len(self.routes[0][1])):
            yield self.hops_at({number: index for number, clients in self.routes if index < len(clients)})

    def hops_at(self, indices: Mapping[int, int]) -> list[Hop]:
        """One hop of each route in `indices`, which maps the number of a route to the index of its hop."""
        return [
            Hop(self.round, number, indices[number], clients[indices[number]], self.attempt, len(clients))
            for number, clients in self.routes
            if number in indices
        ]


def batch_routes(plan: RoundPlan, samples: Callable[[int], int], lanes: int, attempt: int = 0) -> list[RouteBatch]:
    """Split the routes into as few batches of at most `lanes` routes as possible.

    Similar routes go together, the longest first. `samples` gives the number of samples of a client.
    """

    def work(number: int) -> tuple[int, int, int]:
        clients = plan.routes[number].clients
        return -len(clients), -sum(map(samples, clients)), number

    routes = [number for number, route in enumerate(plan.routes) if route.clients]
    numbers = iter(sorted(routes, key=work))
    count = -(-len(routes) // lanes)
    # The larger batches first: a worker that runs the last batch alone should have the least to do.
    sizes = [len(routes) // count + (part < len(routes) % count) for part in range(count)]
    return [
        RouteBatch(
            plan.round, tuple((number, plan.routes[number].clients) for number in islice(numbers, size)), attempt
        )
        for size in sizes
    ]
