"""Virtual time: how long computing and communicating would take on the clients' own devices. Nothing is measured.

Every client has a speed in FLOP/s and a link with a bandwidth in bit/s each way and a latency in seconds. A hop takes

    FLOPs of one sample (forward and backward) · samples · passes over them / speed

and a transfer takes the bytes of all that travels, as in the ledger, over the bandwidth, plus the latency:

    server → client   8·bytes / down + latency
    client → server   8·bytes / up + latency
    client → client   8·bytes / min(up of the sender, down of the receiver) + both latencies

A latency is the time between a client and the network, so a direct handover has two of them. A direct handover streams;
a handover through the server is a whole upload and then a whole download. The server computes in no time, unless the
device profile says how long it takes to add a model to a mean. Its own link never is a bottleneck. Where data are
pooled nothing travels, and the device is that of the client that the plan names.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

from fedrelay.cost.devices import DeviceOf
from fedrelay.cost.ledger import SERVER, ExtraPayloads, Kind, SetupCost
from fedrelay.routes.plan import Handover, RoundPlan, Route


@dataclass(frozen=True)
class RouteTime:
    """How long one model travels, in seconds."""

    training: float = 0.0
    travelling: float = 0.0
    waiting: float = 0.0
    """For clients that train another route's model, are slow or do not answer."""

    @property
    def seconds(self) -> float:
        """From the server and back."""
        return self.training + self.travelling + self.waiting


class VirtualTime(NamedTuple):
    """Seconds of a round by the virtual clock, under the names of the ledger."""

    virtual_seconds: float = 0.0
    """Until the last model has returned and is merged."""

    idle_seconds: float = 0.0
    """The sum over models of the seconds in which they are neither trained nor transferred."""

    computing_seconds: float = 0.0
    communicating_seconds: float = 0.0
    """T_comp and T_comm of FedGSP's cost model: the training of the longest route and merging, and all transfers as if
    they were done one after another."""


def one_after_another(times: Iterable[VirtualTime]) -> VirtualTime:
    """The sum of times."""
    return VirtualTime(*map(sum, zip(VirtualTime(), *times, strict=True)))


def side_by_side(routes: Sequence[RouteTime], merging: float = 0.0) -> VirtualTime:
    """The time of a round whose routes all start at once and are then merged."""
    longest = max((route.seconds for route in routes), default=0.0)
    return VirtualTime(
        longest + merging,
        sum(longest - route.seconds + route.waiting for route in routes),
        max((route.training for route in routes), default=0.0) + merging,
        sum(route.travelling for route in routes),
    )


def once(client: int) -> float:
    """One pass over the samples of any client."""
    return 1.0


@dataclass(frozen=True)
class TimeModel:
    """How long hops, transfers, routes, rounds and setup steps take."""

    device: DeviceOf
    samples: Callable[[int], int]
    """Client → its number of samples."""

    sample_flops: float
    passes: Callable[[int], float]
    """Client → how often a hop goes through its samples."""

    payloads: Mapping[str, int]
    """What travels on every transfer: name → bytes."""

    extras: ExtraPayloads = field(default_factory=dict)
    """What else travels on transfers of one kind."""

    merge_seconds: float = 0.0
    """Seconds the server takes to add a model to a mean."""

    check_flops: float = 0.0
    """FLOPs of checking a model before it is handed on."""

    def __post_init__(self) -> None:
        """Cache times: the same clients come again and again."""
        many = dict.fromkeys(("hop_time", "transfer_time", "_alone"), 1 << 16)
        for name, most in {**many, "_bits": 3, "_timed": 4}.items():
            object.__setattr__(self, name, lru_cache(most)(getattr(self, name)))

    def hop_time(self, client: int) -> float:
        """Seconds of training at one client, and of checking the result."""
        trained = self.sample_flops * self.samples(client) * self.passes(client)
        return (trained + self.check_flops) / self.device(client).flops

    def transfer_time(self, source: int, target: int) -> float:
        """Seconds from one end to the other; either may be the `SERVER`."""
        if source == SERVER:
            return self._bits("s2c") / self.device(target).down + self.device(target).latency
        if target == SERVER:
            return self._bits("c2s") / self.device(source).up + self.device(source).latency
        sender, receiver = self.device(source), self.device(target)
        return self._bits("c2c") / min(sender.up, receiver.down) + sender.latency + receiver.latency

    def _bits(self, kind: Kind) -> int:
        return 8 * (sum(self.payloads.values()) + sum(self.extras.get(kind, {}).values()))

    def route_times(self, plan: RoundPlan) -> tuple[RouteTime, ...]:
        """How long the model of every route takes, from the server and back."""
        if plan.handover != "peers" and not _shared_clients(plan):  # then no route depends on another
            return tuple(self._alone(route.clients, plan.handover) for route in plan.routes)
        return self._timed(replace(plan, round=0))[0]  # where routes stay the same, so does their time

    def _alone(self, clients: tuple[int, ...], handover: Handover) -> RouteTime:
        """How long one model takes that meets no other."""
        return self._timed(RoundPlan(0, (Route(clients),), handover))[0][0]

    def round_time(self, plan: RoundPlan, delays: Sequence[float] = ()) -> VirtualTime:
        """How long a round takes; `delays` are seconds that each route loses to faults."""
        routes, merging = self.route_times(plan), 0.0
        if plan.merges:
            merging = self.merge_seconds * max(0, sum(bool(route.clients) for route in plan.routes) - 1)
        if delays:
            late = zip(routes, delays, strict=True)
            routes = tuple(replace(each, waiting=each.waiting + delay) for each, delay in late)
        return side_by_side(routes, merging)

    def return_times(self, plan: RoundPlan) -> list[list[float]]:
        """For every route, when it would return if it ended after its first client, its second, and so on."""
        return self._timed(plan)[1]

    def _timed(self, plan: RoundPlan) -> tuple[tuple[RouteTime, ...], list[list[float]]]:
        """The time and the return times of every route.

        All routes start at once, and a client trains one model at a time. A model that comes to a busy client waits;
        the first to come is the first to be trained.
        """
        ways = [self._transfer_times(route, plan) for route in plan.routes]
        trained = [list(map(self.hop_time, route.clients)) for route in plan.routes]
        waits = [0.0] * len(ways)
        returns: list[list[float]] = [[] for _ in ways]
        free_at: dict[int, float] = {}
        through_server = plan.handover in ("direct", "server", "sealed")
        queue = [(ways[number][0], number, 0) for number, route in enumerate(plan.routes) if route.clients]
        # Where no model waits for another, each is followed to its end.
        take: Callable[[], tuple[float, int, int]] = queue.pop
        put: Callable[[tuple[float, int, int]], None] = queue.append
        if _shared_clients(plan):
            heapq.heapify(queue)
            take, put = partial(heapq.heappop, queue), partial(heapq.heappush, queue)
        while queue:
            now, number, hop = take()
            clients = plan.routes[number].clients
            client = clients[hop]
            begin = max(now, free_at.get(client, 0.0))
            end = free_at[client] = begin + trained[number][hop]
            waits[number] += begin - now
            returns[number].append(end + (self.transfer_time(client, SERVER) if through_server else ways[number][-1]))
            if hop + 1 < len(clients):
                put((end + ways[number][hop + 1], number, hop + 1))
        return tuple(map(RouteTime, map(sum, trained), map(sum, ways), waits)), returns

    def setup_time(self, step: SetupCost) -> VirtualTime:
        """How long a setup step takes, which all its clients do at the same time."""
        times = []
        for place, client in enumerate(step.clients):
            device = self.device(client)
            links = ((step.down, device.down), (step.up, device.up))
            travelling = sum(
                8 * transfer.size_of(place) / bandwidth + device.latency for transfer, bandwidth in links if transfer
            )
            times.append(RouteTime(step.work(self.samples(client), self.sample_flops) / device.flops, travelling))
        return side_by_side(times)

    def _transfer_times(self, route: Route, plan: RoundPlan) -> list[float]:
        """Seconds of the transfer to each client, and of the last one back."""
        if plan.handover == "none":
            return [0.0] * (len(route.clients) + 1)
        if plan.handover == "peers":  # one after another to everybody else
            holders = [other.clients[-1] for other in plan.routes if other is not route and other.clients]
            sending = sum(self.transfer_time(client, holder) for client in route.clients[-1:] for holder in holders)
            return [0.0] * len(route.clients) + [sending]
        if not route.clients:
            return [0.0]
        if plan.handover == "direct":
            between = [self.transfer_time(source, target) for source, target in pairwise(route.clients)]
        else:
            through = (
                (self.transfer_time(a, SERVER), self.transfer_time(SERVER, b)) for a, b in pairwise(route.clients)
            )
            between = [up + down for up, down in through]
        first, last = route.clients[0], route.clients[-1]
        return [self.transfer_time(SERVER, first), *between, self.transfer_time(last, SERVER)]


def _shared_clients(plan: RoundPlan) -> bool:
    """Whether a client is on several routes."""
    visited = [set(route.clients) for route in plan.routes]
    return len(set[int]().union(*visited)) < sum(map(len, visited))
