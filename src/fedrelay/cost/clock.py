"""Virtual time: what computing and communicating would take on the clients' own devices. Nothing is measured.

Every client has a speed in FLOP/s and a link with a bandwidth in bit/s each way and a latency in seconds. A visit takes

    FLOPs of one sample (forward and backward) · samples · epochs / speed

and a transfer the bytes of all that travels, as in the ledger, over the bandwidth, plus the latency:

    server → client   8·bytes / down + latency
    client → server   8·bytes / up + latency
    client → client   8·bytes / min(up of the sender, down of the receiver) + both latencies

A latency is the way from a client to the net, so a direct hand-over goes through two of them; it streams, while a relay
through the server is a whole upload and then a whole download. The server computes in no time, unless the profile says
how long it takes to add a model to a mean, and its own link has room for all. Where the data are pooled nothing
travels, and the device is that of the client the plan names.
"""

from __future__ import annotations

import copy
import csv
import heapq
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from fedrelay.cost.ledger import SERVER, ExtraPayloads, Kind, SetupStep, transfers
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import Section, unknown
from fedrelay.rng import generator
from fedrelay.routes.plan import Handover, RoundPlan, Route

if TYPE_CHECKING:  # imported where it is used, because it is slow and settings do not need it
    from torch import Tensor, nn

ProfileName = Literal["uniform", "log-normal", "two-tier", "csv", "fedgsp"]

_DEVICE = frozenset({"flops", "down", "up", "latency"})
OPTIONS: dict[ProfileName, frozenset[str]] = {
    "uniform": _DEVICE,
    "log-normal": _DEVICE | {"speed_sigma", "link_sigma"},
    "two-tier": _DEVICE | {"slow_share", "slow_factor"},
    "csv": frozenset({"path"}),
    "fedgsp": frozenset(),
}
"""What each profile looks at."""


@dataclass(frozen=True)
class Device:
    """What one client computes and communicates with."""

    flops: float
    """FLOP/s."""

    down: float
    up: float
    """bit/s from and to the net."""

    latency: float
    """Seconds to the net, either way."""

    def scaled(self, speed: float, link: float) -> Device:
        """A device so many times as fast, with so many times the bandwidth."""
        return Device(self.flops * speed, self.down * link, self.up * link, self.latency)


DeviceOf = Callable[[int], Device]
"""The device of any client, asked for alone."""

FEDGSP_DEVICE = Device(flops=567e9, down=567e6, up=567e6, latency=0.0)
FEDGSP_SAMPLE_FLOPS = 96e6
FEDGSP_MERGE_FLOPS = 6.3e6
"""The constants of S. Zeng et al., FedGSP, DASFAA 2022, section 4.1."""


SERVERS_OWN = Device(math.inf, math.inf, math.inf, 0.0)
"""The server computes in no time."""


class Clock(Section):
    """What devices and links the clients have, for times that are computed and not measured."""

    profile: ProfileName = Field(
        "uniform",
        description="the clients' devices: uniform (all alike), log-normal, two-tier, csv (from a file) or fedgsp "
        "(that paper's constants)",
    )
    flops: float = Field(1e10, ge=1, description="FLOP/s of a client; its median if log-normal, the fast tier's")
    down: float = Field(1e8, ge=1, description="bit/s from the net to a client; median or fast tier's likewise")
    up: float = Field(2e7, ge=1, description="bit/s from a client to the net; median or fast tier's likewise")
    latency: float = Field(0.05, ge=0, description="seconds between a client and the net")
    speed_sigma: float = Field(0.5, ge=0, le=5, description="log-normal: standard deviation of the log of the speed")
    link_sigma: float = Field(
        0.5, ge=0, le=5, description="log-normal: the same of the bandwidth, one draw for both ways"
    )
    slow_share: float = Field(0.2, ge=0, le=1, description="two-tier: the probability that a client is slow")
    slow_factor: float = Field(
        10.0, ge=1, le=1e6, description="two-tier: how many times slower its computing and its link are"
    )
    path: Path | None = Field(
        None, description="csv: a file with the columns client, flops, down, up and latency; clients count from 0"
    )

    @model_validator(mode="after")
    def _everything_has_an_effect(self) -> Self:
        for name, each in type(self).model_fields.items():
            if name not in {"profile", *OPTIONS[self.profile]} and getattr(self, name) != each.default:
                owners = [repr(profile) for profile, options in OPTIONS.items() if name in options]
                raise ValueError(
                    f"{name}: has no effect with profile {self.profile!r}; it is an option of {', '.join(owners)}"
                )
        if self.profile == "csv" and self.path is None:
            raise ValueError("path: is required with profile 'csv'")
        return self

    @property
    def sample_flops(self) -> float | None:
        """FLOPs of one training sample where the profile fixes them; else they are counted on the model."""
        return FEDGSP_SAMPLE_FLOPS if self.profile == "fedgsp" else None

    @property
    def merge_seconds(self) -> float:
        """What it takes the server to add a model to a mean."""
        return FEDGSP_MERGE_FLOPS / FEDGSP_DEVICE.flops if self.profile == "fedgsp" else 0.0

    def devices(self, seed: int, clients: int) -> DeviceOf:
        """The device of each of so many clients; a drawn one depends on the seed and the client alone."""
        usual = Device(self.flops, self.down, self.up, self.latency)
        if self.profile == "csv":
            assert self.path is not None
            return read_devices(self.path, clients).__getitem__
        if self.profile == "fedgsp":
            return lambda client: FEDGSP_DEVICE
        if self.profile == "uniform":
            return lambda client: usual

        @cache
        def drawn(client: int) -> Device:
            rng = generator(seed, "devices", client)
            if self.profile == "two-tier":
                slow = rng.random() < self.slow_share
                return usual.scaled(1 / self.slow_factor, 1 / self.slow_factor) if slow else usual
            speed, link = rng.standard_normal(2)
            return usual.scaled(math.exp(self.speed_sigma * speed), math.exp(self.link_sigma * link))

        return drawn


def read_devices(path: Path, clients: int) -> dict[int, Device]:
    """The devices that a file gives for clients 0 … clients − 1; it may hold more."""
    try:
        rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True)
        lines = [(rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: is no CSV file ({error})") from None
    columns = _columns(path, [name.strip() for name in lines[0][1]] if lines else [])
    devices: dict[int, Device] = {}
    for number, row in lines[1:]:
        if len(row) != len(columns):
            raise DataError(f"{path}, line {number}: {len(row)} values for {len(columns)} columns")
        values = dict(zip(columns, (cell.strip() for cell in row), strict=True))
        client = values.pop("client")
        if not (client.isascii() and client.isdecimal() and len(client) < 19):
            raise DataError(f"{path}, line {number}: client: must be a whole number from 0, got {client!r}")
        if int(client) in devices:
            raise DataError(f"{path}, line {number}: client {client} stands there twice")
        numbers = {name: _number(path, number, name, value) for name, value in values.items()}
        devices[int(client)] = Device(**numbers)
    missing = [client for client in range(clients) if client not in devices]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"{path}: no line for client {missing[0]}{more}; needed: 0 … {clients - 1}")
    return devices


def _columns(path: Path, header: list[str]) -> list[str]:
    needed = ["client", *(each.name for each in fields(Device))]
    for name in header:
        if name not in needed or header.count(name) > 1:
            what = f"the column {name!r} stands there twice" if name in needed else unknown("column", name, needed)
            raise DataError(f"{path}: {what}")
    missing = [name for name in needed if name not in header]
    if missing:
        raise DataError(f"{path}: lacks the columns {', '.join(missing)}; its first line must name {', '.join(needed)}")
    return header


def _number(path: Path, line: int, column: str, text: str) -> float:
    """A value of the file, within the same bounds as the settings."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    least = 0 if column == "latency" else 1
    if not (math.isfinite(value) and value >= least):
        raise DataError(f"{path}, line {line}: {column}: must be a number, at least {least}, got {text!r}")
    return value


@dataclass(frozen=True)
class RouteTime:
    """How long one model was under way, and why."""

    training: float = 0.0
    travelling: float = 0.0
    waiting: float = 0.0
    """Seconds; waiting is for clients that are at work on another route's model, are slow or do not answer."""

    hops: int = 0
    samples: int = 0
    """How many visits, and how many samples one epoch of all of them sees."""

    @property
    def seconds(self) -> float:
        """From the server and back again."""
        return self.training + self.travelling + self.waiting


@dataclass(frozen=True)
class RoundTime:
    """How long a round takes whose routes run side by side: until the last model is home."""

    routes: tuple[RouteTime, ...]
    merging: float = 0.0
    """Seconds at the server, after that."""

    @property
    def seconds(self) -> float:
        """The time of the longest route, and of merging."""
        return self._last_home + self.merging

    @property
    def _last_home(self) -> float:
        return max((route.seconds for route in self.routes), default=0.0)

    @property
    def computing(self) -> float:
        """T_comp of FedGSP's cost model: the training of the longest route, and merging."""
        return max((route.training for route in self.routes), default=0.0) + self.merging

    @property
    def communicating(self) -> float:
        """T_comm of FedGSP's cost model: all transfers, as if they came one after another."""
        return sum(route.travelling for route in self.routes)

    @property
    def busy(self) -> float:
        """The sum over routes of the seconds in which their model is trained or carried."""
        return sum(route.training + route.travelling for route in self.routes)

    @property
    def idle(self) -> float:
        """The sum over routes of the seconds in which it is not.

        That is round − route for a route that is home early, plus its waiting for busy clients: busy + idle is the
        number of routes times the seconds until the last is home.
        """
        end = self._last_home
        return sum(end - route.seconds + route.waiting for route in self.routes)

    @property
    def longest_hops(self) -> int:
        """The most visits of one route."""
        return max((route.hops for route in self.routes), default=0)

    @property
    def longest_samples(self) -> int:
        """The most samples of one route."""
        return max((route.samples for route in self.routes), default=0)


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
        """Of a round whose models wait for each other."""
        return cls(found.seconds, found.idle, found.computing, found.communicating)

    @classmethod
    def together(cls, times: Iterable[VirtualTime]) -> VirtualTime:
        """One after another."""
        return cls(*map(sum, zip(cls(0.0, 0.0), *times, strict=True)))

    def named(self) -> dict[str, float]:
        """As the ledger calls them."""
        return {
            f"{name}_seconds" if name != "seconds" else "virtual_seconds": each for name, each in self._asdict().items()
        }


@dataclass(frozen=True)
class TimeModel:
    """The one place that knows how long things take."""

    device: DeviceOf
    samples: Callable[[int], int]
    """How many samples a client holds."""

    sample_flops: float
    epochs: int
    payloads: Mapping[str, int]
    """What travels on every trip, all of it together: name → bytes."""

    extras: ExtraPayloads = field(default_factory=dict)
    """What else travels on trips of one kind."""

    merge_seconds: float = 0.0
    """What it takes the server to add a model to a mean."""

    check_flops: float = 0.0
    """What it takes to look at a model before it is handed on."""

    def __post_init__(self) -> None:
        """Remember what was worked out: the same clients come again and again."""
        for name, most in (("hop_time", 1 << 16), ("transfer_time", 1 << 16), ("_timed", 4)):
            object.__setattr__(self, name, lru_cache(most)(getattr(self, name)))

    def hop_time(self, client: int) -> float:
        """Seconds of training at one client, and of looking at the result."""
        return (self.sample_flops * self.samples(client) * self.epochs + self.check_flops) / self.device(client).flops

    def transfer_time(self, source: int, target: int) -> float:
        """Seconds from one end to the other, either of which may be the `SERVER`."""
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
        homes: list[list[float]] = [[] for _ in ways]
        free_at: dict[int, float] = {}
        coming = [(ways[number][0], number, 0) for number, route in enumerate(plan.routes) if route.clients]
        heapq.heapify(coming)
        while coming:
            now, number, hop = heapq.heappop(coming)
            clients = plan.routes[number].clients
            begin = max(now, free_at.get(clients[hop], 0.0))
            end = free_at[clients[hop]] = begin + self.hop_time(clients[hop])
            waits[number] += begin - now
            homes[number].append(end + self._way_home(plan, clients[hop], ways[number][-1]))
            if hop + 1 < len(clients):
                heapq.heappush(coming, (end + ways[number][hop + 1], number, hop + 1))
        merging = self.merge_seconds * max(0, sum(map(bool, homes)) - 1) if plan.merges else 0.0
        return tuple(map(self._route_time, plan.routes, ways, waits)), merging, homes

    def _way_home(self, plan: RoundPlan, client: int, last: float) -> float:
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
        """Seconds of the transfer to every client in turn, and at last back."""
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


def training_flops(
    module: nn.Module, inputs: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
) -> float:
    """FLOPs of one sample in a training step, forward and backward, counted on a real step of a copy on the CPU.

    Any batch of samples will do. Products of matrices and convolutions count, a multiplication and an addition as two;
    the rest is small beside them.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from fedrelay.models.layout import TORCH_GLOBALS

    pair = [0, -1]  # two samples, because BatchNorm cannot train on one; they may be the same
    formulas = {
        torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops,
        torch.ops.aten.mkldnn_rnn_layer_backward: _recurrent_backward_flops,
    }
    copied = copy.deepcopy(module).cpu().train()
    x, y = inputs[pair].cpu(), targets[pair].cpu()
    if x.is_floating_point():
        x = x.to(next(copied.parameters()).dtype)
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):  # dropout draws
        counter = FlopCounterMode(display=False, custom_mapping=formulas)
        try:
            with counter, torch.enable_grad():
                loss(copied(x), y).backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # whatever a module of the user's own may raise
            raise SpecError(f"model: cannot be trained: {type(error).__name__}: {error}") from None
    return counter.get_total_flops() / len(pair)


def _recurrent_flops(
    inputs: Sequence[int], weights: Sequence[int], recurrent: Sequence[int], *_: object, **__: object
) -> int:
    """Of a recurrent layer, which PyTorch does not count on CPUs: both weight matrices meet every step."""
    return 2 * math.prod(inputs[:2]) * (math.prod(weights) + math.prod(recurrent))


def _recurrent_backward_flops(
    inputs: Sequence[int], weights: Sequence[int], recurrent: Sequence[int], *_: object, **__: object
) -> int:
    """Gradients of the inputs and of the weights."""
    return 2 * _recurrent_flops(inputs, weights, recurrent)
