"""Virtual time: how long computing and communicating would take on the clients' own devices. Nothing is measured.

Every client has a speed in FLOP/s and a link with a bandwidth in bit/s each way and a latency in seconds. A hop takes

    FLOPs of one sample (forward and backward) · samples · epochs / speed

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
from functools import lru_cache
from typing import NamedTuple

from fedrelay.cost.devices import DeviceOf
from fedrelay.cost.ledger import SERVER, ExtraPayloads, Kind, SetupStep, transfers
from fedrelay.routes.plan import Handover, RoundPlan, Route


@dataclass(frozen=True)
class RouteTime:
    """How long one model travels, in seconds."""

    training: float = 0.0
    travelling: float = 0.0
    waiting: float = 0.0
    """For clients that train another route's model, are slow or do not answer."""

    hops: int = 0
    samples: int = 0
    """Number of hops, and number of samples that one epoch of all of them sees."""

    @property
    def seconds(self) -> float:
        """From the server and back."""
        return self.training + self.travelling + self.waiting


@dataclass(frozen=True)
class RoundTime:
    """How long a round takes whose routes run side by side: until the last model returns."""

    routes: tuple[RouteTime, ...]
    merging: float = 0.0
    """Seconds at the server, after that."""

    @property
    def seconds(self) -> float:
        """The time of the longest route, and of merging."""
        return max((route.seconds for route in self.routes), default=0.0) + self.merging

    @property
    def computing(self) -> float:
        """T_comp of FedGSP's cost model: the training of the longest route, and merging."""
        return max((route.training for route in self.routes), default=0.0) + self.merging

    @property
    def communicating(self) -> float:
        """T_comm of FedGSP's cost model: all transfers, as if they were done one after another."""
        return sum(route.travelling for route in self.routes)

    @property
    def idle(self) -> float:
        """The sum over routes of the seconds in which their model is neither trained nor transferred."""
        end = self.seconds - self.merging
        return sum(end - route.seconds + route.waiting for route in self.routes)


class VirtualTime(NamedTuple):
    """Seconds of a round by the virtual clock."""

    seconds: float
    idle: float
    """Summed over all models."""

    computing: float = 0.0
    communicating: float = 0.0
    """T_comp and T_comm of FedGSP's cost model (see `RoundTime`)."""

    @classmethod
    def of(cls, found: RoundTime) -> VirtualTime:
        """The time of a round whose models wait for each other."""
        return cls(found.seconds, found.idle, found.computing, found.communicating)

    @classmethod
    def together(cls, times: Iterable[VirtualTime]) -> VirtualTime:
        """The sum of times, one after another."""
        return cls(*map(sum, zip(cls(0.0, 0.0), *times, strict=True)))

    def named(self) -> dict[str, float]:
        """The times under the names of the ledger."""
        return {
            f"{name}_seconds" if name != "seconds" else "virtual_seconds": each for name, each in self._asdict().items()
        }


@dataclass(frozen=True)
class TimeModel:
    """How long hops, transfers, routes, rounds and setup steps take."""

    device: DeviceOf
    samples: Callable[[int], int]
    """Client → its number of samples."""

    sample_flops: float
    epochs: int
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
        for name, most in (("hop_time", 1 << 16), ("transfer_time", 1 << 16), ("_timed", 4)):
            object.__setattr__(self, name, lru_cache(most)(getattr(self, name)))

    def hop_time(self, client: int) -> float:
        """Seconds of training at one client, and of checking the result."""
        return (self.sample_flops * self.samples(client) * self.epochs + self.check_flops) / self.device(client).flops

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

    def route_time(self, clients: Sequence[int], handover: Handover = "direct") -> RouteTime:
        """How long one model takes through these clients, from the server and back, if no other model is in its way."""
        route = Route(tuple(clients))
        return self._route_time(route, self._transfer_times(route, RoundPlan(0, (route,), handover)), waiting=0.0)

    def round_time(self, plan: RoundPlan, delays: Sequence[float] = ()) -> RoundTime:
        """How long a round takes: all routes start at once, and a client trains one model at a time.

        A model that comes to a busy client waits; the first to come is the first to be trained. `delays` are seconds
        that each route loses to faults.
        """
        routes, merging, _ = self._timed(replace(plan, round=0))  # where routes stay the same, so does their time
        if delays:
            late = zip(routes, delays, strict=True)
            routes = tuple(replace(each, waiting=each.waiting + delay) for each, delay in late)
        return RoundTime(routes, merging)

    def return_times(self, plan: RoundPlan) -> list[list[float]]:
        """For every route, when it would return if it ended after its first client, its second, and so on."""
        return self._timed(plan)[2]

    def _timed(self, plan: RoundPlan) -> tuple[tuple[RouteTime, ...], float, list[list[float]]]:
        """The time of every route, the time to merge, and the return times of every route."""
        ways = [self._transfer_times(route, plan) for route in plan.routes]
        waits = [0.0] * len(ways)
        returns: list[list[float]] = [[] for _ in ways]
        free_at: dict[int, float] = {}
        queue = [(ways[number][0], number, 0) for number, route in enumerate(plan.routes) if route.clients]
        heapq.heapify(queue)
        while queue:
            now, number, hop = heapq.heappop(queue)
            clients = plan.routes[number].clients
            begin = max(now, free_at.get(clients[hop], 0.0))
            end = free_at[clients[hop]] = begin + self.hop_time(clients[hop])
            waits[number] += begin - now
            returns[number].append(end + self._return_time(plan, clients[hop], ways[number][-1]))
            if hop + 1 < len(clients):
                heapq.heappush(queue, (end + ways[number][hop + 1], number, hop + 1))
        merging = self.merge_seconds * max(0, sum(map(bool, returns)) - 1) if plan.merges else 0.0
        return tuple(map(self._route_time, plan.routes, ways, waits)), merging, returns

    def _return_time(self, plan: RoundPlan, client: int, last: float) -> float:
        """Seconds from a client to the server, if the route ends there; `last` is the time from its last client."""
        return self.transfer_time(client, SERVER) if plan.handover in ("direct", "server") else last

    def setup_time(self, step: SetupStep) -> RoundTime:
        """How long a setup step takes, which all its clients do at the same time."""
        return RoundTime(tuple(self._setup_time(step, place) for place in range(len(step.clients))))

    def _setup_time(self, step: SetupStep, place: int) -> RouteTime:
        client = step.clients[place]
        device, samples = self.device(client), self.samples(client)
        links = ((step.down, device.down), (step.up, device.up))
        travelling = sum(
            8 * transfer.size_of(place) / bandwidth + device.latency for transfer, bandwidth in links if transfer
        )
        return RouteTime(step.work(samples, self.sample_flops) / device.flops, travelling, hops=1, samples=samples)

    def _route_time(self, route: Route, ways: Sequence[float], waiting: float) -> RouteTime:
        return RouteTime(
            training=sum(map(self.hop_time, route.clients)),
            travelling=sum(ways),
            waiting=waiting,
            hops=len(route.clients),
            samples=sum(map(self.samples, route.clients)),
        )

    def _transfer_times(self, route: Route, plan: RoundPlan) -> list[float]:
        """Seconds of the transfer to each client, and of the last one back."""
        if plan.handover == "none":
            return [0.0] * (len(route.clients) + 1)
        if plan.handover == "peers":  # one after another to everybody else
            holders = [other.clients[-1] for other in plan.routes if other is not route and other.clients]
            sending = sum(self.transfer_time(client, holder) for client in route.clients[-1:] for holder in holders)
            return [0.0] * len(route.clients) + [sending]
        ways = [0.0]
        for _, source, target in transfers(RoundPlan(0, (route,), plan.handover)):
            ways[-1] += self.transfer_time(source, target)
            if target != SERVER:
                ways.append(0.0)
        return ways
