"""The round plan: how models travel, as plain frozen data.

A plan can be printed, saved, counted and executed by any engine. It knows nothing of the method that
made it, and imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from typing import Literal

Handover = Literal["direct", "server", "peers", "none"]
"""How a model gets from one client to the next: handed over directly, through the server, from every client to every
other without a server, or not at all (nothing is transferred: the data are pooled in one place)."""


@dataclass(frozen=True)
class Hop:
    """One client's turn in one route: the unit of work, and the key of all its randomness."""

    round: int
    route: int
    index: int
    client: int
    attempt: int = 0
    """How often the round was tried before."""


Tampering = Literal["nan", "inf", "shape", "zero", "explode", "sign-flip", "replace"]
"""What may be done to a model after training and before it is handed on."""


@dataclass(frozen=True)
class Tamper:
    """One turn whose model is tampered with."""

    route: int
    index: int
    what: Tampering
    factor: float = 1.0


@dataclass(frozen=True)
class Route:
    """One trip of one model from the server: whom it visits, in this order.

    A client may appear more than once: a loop over a group is simply a longer trip.
    """

    clients: tuple[int, ...]
    slot: int | None = None
    """The place where the model waits between rounds that do not merge; it sets off from there the next time. None, or
    an empty place: it sets off as the global model."""

    order: tuple[int, ...] = ()
    """One number for each hop, where it is known which of two routes reaches a client first: the hop with the lower
    number. The later hop reads the client state that the earlier one left. Empty: hop j of every route comes before hop
    j + 1 of any."""

    continues: bool = False
    """Whether a model waits in the slot. Otherwise the route sets off with the global model."""

    def only(self, hops: Sequence[int]) -> Route:
        """The same route with these hops alone, given by their index."""
        order = tuple(self.order[index] for index in hops) if self.order else ()
        return replace(self, clients=tuple(self.clients[index] for index in hops), order=order)


@dataclass(frozen=True)
class Mixing:
    """A model sets off as (1 − share) of its own and `share` of the other routes' models."""

    share: float
    temperature: float | None = None
    """Others count by the softmax of their accuracy over this, on the samples of the client whose model it is; None:
    all count the same."""


@dataclass(frozen=True, order=True)
class Leg:
    """The model of a slot on its way through a group."""

    slot: int
    group: int
    clients: tuple[int, ...]


@dataclass(frozen=True)
class AsyncState:
    """How models stand that do not wait for each other, since they were merged; one entry for each slot."""

    since: int
    """The first round after the merge."""

    done: tuple[int, ...]
    """How many groups each model is done with."""

    left: tuple[int | None, ...]
    """The group it came out of last, if it was in any."""

    draw: int = 0
    """How often somebody decided who goes where."""

    under_way: tuple[Leg, ...] = ()

    @classmethod
    def after(cls, since: int, visited: Sequence[Sequence[int]]) -> AsyncState:
        """When models have been through these groups and nobody is under way; at the beginning, through none."""
        done = tuple(map(len, visited))
        return cls(since, done, tuple(groups[-1] if groups else None for groups in visited), max(done))

    @property
    def fastest(self) -> int:
        """The most groups that a model is done with."""
        return max(self.done)

    @property
    def free(self) -> tuple[int, ...]:
        """Slots whose model is not under way."""
        away = {leg.slot for leg in self.under_way}
        return tuple(slot for slot in range(len(self.done)) if slot not in away)

    @property
    def busy(self) -> frozenset[int]:
        """Groups that have a model."""
        return frozenset(leg.group for leg in self.under_way)

    def set_off(self, legs: Sequence[Leg]) -> AsyncState:
        """After it was decided that these set off."""
        return replace(self, draw=self.draw + 1, under_way=(*self.under_way, *legs))

    def home(self, legs: Sequence[Leg], fruitless: Sequence[Leg] = ()) -> AsyncState:
        """After these came home; those that nobody's work is in are not done with anything."""
        done, left = list(self.done), list(self.left)
        for leg in (*legs, *fruitless):
            left[leg.slot] = leg.group
        for leg in legs:
            done[leg.slot] += 1
        rest = tuple(leg for leg in self.under_way if leg not in legs and leg not in fruitless)
        return replace(self, done=tuple(done), left=tuple(left), under_way=rest)


@dataclass(frozen=True)
class AsyncRound:
    """A round that ends when the fastest model is done with one group more, by real times of arrival."""

    since: int
    """The first round after the last merge."""

    goes_on: bool
    """Whether models go on over the end of the round."""

    wait: bool
    """Whether work under way at a merge is finished, instead of given up."""

    next_legs: Callable[[AsyncState], tuple[Leg, ...]] = field(compare=False)
    """Who goes where now."""


@dataclass(frozen=True)
class RoundPlan:
    """Everything that travels in one round. Routes run side by side, the hops of a route one after another."""

    round: int
    routes: tuple[Route, ...]
    relay: Handover = "direct"
    merges: bool = True
    """Whether the models are merged at the end of the round; otherwise each waits in its slot."""

    seconds: float | None = None
    """How long the round takes by the virtual clock, where that is not simply the longest route."""

    followed: tuple[int, ...] = ()
    """Routes on which every stop is asked what the model still knows of the clients before."""

    mixing: Mixing | None = None
    """How models are mixed with those of the other routes before they set off, if they are."""

    tampers: tuple[Tamper, ...] = ()
    """Turns whose model is tampered with."""

    tapped: tuple[tuple[int, int], ...] = ()
    """(route, index) of turns at which somebody looks at the model that a client receives."""

    attempt: int = 0
    """How often the round was tried before."""

    delays: tuple[float, ...] = ()
    """Seconds that each route loses to clients that are slow or do not answer; none if empty."""

    wasted: tuple[tuple[str, int], ...] = ()
    """(kind of transfer, how many models were sent without effect), besides those of the routes."""

    race: AsyncRound | None = None
    """Where real arrivals decide who goes where; the routes are then only what the virtual clock expects."""

    @property
    def longest(self) -> int:
        """The number of hops of the longest route: what a round costs in time when all run side by side."""
        return max((len(route.clients) for route in self.routes), default=0)

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """For each route, the step of each of its hops, where client state decides what may run side by side.

        A hop comes one step after the hop before it on its route, or later: where the routes have an order, also after
        all hops at the same client that come first.
        """
        if not any(route.order for route in self.routes):
            return tuple(tuple(range(len(route.clients))) for route in self.routes)
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

    @property
    def client_updates(self) -> int:
        """The number of hops of all routes together: what a round costs in work."""
        return sum(len(route.clients) for route in self.routes)
