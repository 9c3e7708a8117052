"""The round plan: how models travel, as plain frozen data.

A plan can be printed, saved, counted and executed by any engine. It knows nothing of the method that made it, and
imports nothing of the package but how notebooks show it. What happens to a plan while it is executed is in
`routes.execution_overlay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import Literal

from fedrelay.notebook_display import NotebookDisplay

Handover = Literal["direct", "server", "sealed", "peers", "none"]
"""How a model gets from one client to the next:

* direct: clients hand it to each other,
* server: it goes through the server,
* sealed: it goes through the server, encrypted for the next client; the server reads only the end of each route,
* peers: every client sends its model to every other, there is no server,
* none: nothing is transferred, because the data are pooled in one place.
"""

ENVELOPE_BYTES = 1024
"""What sealing adds to a model and its payload: signature, keys, authentication and a short header, filled up."""


@dataclass(frozen=True)
class Hop:
    """One client's step on one route: the unit of work, and the key of all its randomness."""

    round: int
    route: int
    index: int
    client: int
    attempt: int = 0
    """How often the round was tried before."""

    route_length: int = 1
    """The number of hops of its route. It sets the learning rate along a chain and keys no randomness."""


@dataclass(frozen=True)
class Route:
    """One model's path from the server through clients and back.

    A client may appear more than once: a loop over a group is simply a longer route.
    """

    clients: tuple[int, ...]
    slot: int | None = None
    """Where the model waits between rounds that do not merge; the slot's next route starts with it."""

    order: tuple[int, ...] = ()
    """One number for each hop, where it is known which of two routes reaches a client first: the hop with the lower
    number. The later hop reads the client state that the earlier one left. Empty: hop j of every route comes before hop
    j + 1 of any."""

    continues: bool = False
    """Whether a model waits in the slot. Otherwise the route starts with the global model."""

    def only(self, hops: Sequence[int]) -> Route:
        """The same route with these hops alone, given by their index."""
        order = tuple(self.order[index] for index in hops) if self.order else ()
        return replace(self, clients=tuple(self.clients[index] for index in hops), order=order)


@dataclass(frozen=True)
class Mixing:
    """A route starts with (1 − share) of its own model and `share` of the other routes' models."""

    share: float
    temperature: float | None = None
    """Other models are weighted by the softmax of their accuracy over this temperature, measured on the samples of the
    client that owns the route; None: all weigh the same."""


@dataclass(frozen=True)
class AsyncRoundInfo:
    """A round whose models do not wait for each other. It ends when the fastest model has finished one more group."""

    since: int
    """The first round after the last merge."""

    seconds: float
    """How long the round takes by the virtual clock."""

    real: bool = False
    """Whether real arrivals decide which model goes where; the routes are then only what the virtual clock expects."""

    overlaps: bool = False
    """Whether models keep travelling into the next round."""

    waits: bool = False
    """Whether a merge waits for models under way, instead of giving them up."""


@dataclass(frozen=True)
class RoundPlan(NotebookDisplay):
    """Everything that travels in one round. Routes run side by side, the hops of a route one after another."""

    round: int
    routes: tuple[Route, ...]
    handover: Handover = "direct"
    merges: bool = True
    """Whether the models are merged at the end of the round; otherwise each waits in its slot."""

    mixing: Mixing | None = None
    """How models are mixed with those of the other routes before the first hop, if they are."""

    asynchronous: AsyncRoundInfo | None = None
    """Set where models do not wait for each other."""

    @property
    def real_arrivals(self) -> bool:
        """Whether real arrivals decide which model goes where."""
        return self.asynchronous is not None and self.asynchronous.real

    @property
    def longest(self) -> int:
        """The number of hops of the longest route: what a round costs in time when all run side by side."""
        return max((len(route.clients) for route in self.routes), default=0)

    @property
    def client_updates(self) -> int:
        """The number of hops of all routes together: what a round costs in work."""
        return sum(len(route.clients) for route in self.routes)

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """For each route, the step of each of its hops, where client state decides what may run side by side.

        A hop comes one step after the hop before it on its route, or later: where the routes have an order, also after
        all hops at the same client that come first.
        """
        if not any(route.order for route in self.routes):
            return tuple(tuple(range(len(route.clients))) for route in self.routes)
        return self.steps_one_by_one

    @property
    def steps_one_by_one(self) -> tuple[tuple[int, ...], ...]:
        """The same where a client trains one model after another: in the order of hops, then of routes."""
        hops = []
        for number, route in enumerate(self.routes):
            # A client that is asked again at the end of its route has a lower number than those before it.
            ranks = accumulate(route.order or range(len(route.clients)), max)
            hops += [(rank, number, client) for rank, client in zip(ranks, route.clients, strict=True)]
        steps: list[list[int]] = [[] for _ in self.routes]
        free: dict[int, int] = {}
        for _, number, client in sorted(hops, key=itemgetter(0, 1)):
            step = max(steps[number][-1] + 1 if steps[number] else 0, free.get(client, 0))
            free[client] = step + 1
            steps[number].append(step)
        return tuple(map(tuple, steps))
