"""Transfers and bytes. Everything here follows from the plan alone; nothing is measured.

One transfer carries one named payload, the model or something beside it, from the server or a client to another.
`payloads` are what every transfer carries (name → bytes), `extras` what transfers of one kind carry besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from fedrelay.routes.plan import RoundPlan

Kind = Literal["s2c", "c2s", "c2c"]
KINDS: tuple[Kind, ...] = ("s2c", "c2s", "c2c")
ExtraPayloads = Mapping[Kind, Mapping[str, int]]
NOTHING: ExtraPayloads = {}
SERVER = -1
"""Stands for the server where a transfer names its ends."""


def transfers(plan: RoundPlan) -> Iterator[tuple[Kind, int, int]]:
    """Every (kind, source, target) along which something travels in this round."""
    if plan.handover == "none":
        return
    if plan.handover == "peers":
        holders = [route.clients[-1] for route in plan.routes if route.clients]
        yield from (("c2c", source, target) for source in holders for target in holders if source != target)
        return
    for route in plan.routes:
        if not route.clients:
            continue
        yield "s2c", SERVER, route.clients[0]
        for source, target in zip(route.clients, route.clients[1:], strict=False):
            if plan.handover == "direct":
                yield "c2c", source, target
            else:
                yield "c2s", source, SERVER
                yield "s2c", SERVER, target
        yield "c2s", route.clients[-1], SERVER


@dataclass(frozen=True)
class TransferTotals:
    """Sums over transfers: how many of each kind, and how many bytes. Totals can be added."""

    s2c: int = 0
    c2s: int = 0
    c2c: int = 0
    bytes: int = 0
    bytes_by_payload: Mapping[str, int] = field(default_factory=dict)
    bytes_by_kind: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: Kind, payload: str, count: int, bytes: int) -> TransferTotals:
        """Transfers of one kind that all carry one payload, and their bytes together."""
        return cls(bytes=bytes, bytes_by_payload={payload: bytes}, bytes_by_kind={kind: bytes}, **{kind: count})

    @property
    def total(self) -> int:
        """All transfers of all kinds."""
        return self.s2c + self.c2s + self.c2c

    def __add__(self, other: TransferTotals) -> TransferTotals:
        return TransferTotals(
            self.s2c + other.s2c,
            self.c2s + other.c2s,
            self.c2c + other.c2c,
            self.bytes + other.bytes,
            _sums(self.bytes_by_payload, other.bytes_by_payload),
            _sums(self.bytes_by_kind, other.bytes_by_kind),
        )

    def counts(self) -> dict[str, int]:
        """The number of transfers of each kind."""
        return {"s2c": self.s2c, "c2s": self.c2s, "c2c": self.c2c}


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The sums of two counts, without those that are 0; several times faster than adding two `Counter`s."""
    found = dict(one)
    for name, count in other.items():
        found[name] = found.get(name, 0) + count
    return {name: count for name, count in found.items() if count}


def transfer_counts(plan: RoundPlan) -> dict[Kind, int]:
    """How many models are sent in a round, by kind of transfer, without going through `transfers` one by one."""
    lengths = [len(route.clients) for route in plan.routes if route.clients]
    routes, handed_on = len(lengths), sum(lengths) - len(lengths)
    match plan.handover:
        case "none":
            return {"s2c": 0, "c2s": 0, "c2c": 0}
        case "peers":
            return {"s2c": 0, "c2s": 0, "c2c": routes * (routes - 1)}
        case "direct":
            return {"s2c": routes, "c2s": routes, "c2c": handed_on}
        case "server" | "sealed":
            return {"s2c": routes + handed_on, "c2s": routes + handed_on, "c2c": 0}


def transfer_totals(
    plan: RoundPlan,
    payloads: Mapping[str, int],
    extras: ExtraPayloads = NOTHING,
    wasted: Sequence[tuple[str, int]] = (),
) -> TransferTotals:
    """The transfers of one round, summed; `wasted` are (kind, number of models) that were sent without effect."""
    found = TransferTotals()
    for kind, models in transfer_counts(plan).items():
        models += sum(times for each, times in wasted if each == kind)
        for payload, size in {**payloads, **extras.get(kind, {})}.items():
            found += TransferTotals.of(kind, payload, models, models * size)
    return found


def ledger_line(
    round: int, transfers: TransferTotals, *, updates: int, longest: int, routes: Sequence[Sequence[int]] = ()
) -> dict[str, Any]:
    """One line of the ledger; line 0 is the setup before the first round."""
    costs = {**transfers.counts(), "bytes": transfers.bytes, "payloads": dict(transfers.bytes_by_payload)}
    costs |= {f"{kind}_bytes": transfers.bytes_by_kind.get(kind, 0) for kind in KINDS}
    work = {"client_updates": updates, "longest_route": longest, "routes": [list(route) for route in routes]}
    return {"round": round, **costs, **work}


class SetupTransfer(NamedTuple):
    """What clients receive or send once: its name and its bytes, one number for all clients or one for each."""

    name: str
    bytes: int | Sequence[int]

    def size_of(self, place: int) -> int:
        """The bytes of the client at this place among the clients of the step."""
        return self.bytes if isinstance(self.bytes, int) else self.bytes[place]

    def total(self, clients: int) -> int:
        """The bytes of all clients together."""
        return clients * self.bytes if isinstance(self.bytes, int) else sum(self.bytes)


@dataclass(frozen=True)
class SetupCost:
    """What clients do before the first round or between rounds, side by side: receive something, compute, send."""

    clients: Sequence[int]
    down: SetupTransfer | None = None
    up: SetupTransfer | None = None
    work: Callable[[int, float], float] = lambda samples, flops: 0.0
    """(samples of a client, FLOPs of training the run's model on one) → FLOPs."""

    updates: int = 0
    """The number of clients that train the run's model for it."""

    def totals(self) -> TransferTotals:
        """The transfers of the step, summed."""
        found, count = TransferTotals(), len(self.clients)
        if self.down is not None:
            found += TransferTotals.of("s2c", self.down.name, count, self.down.total(count))
        if self.up is not None:
            found += TransferTotals.of("c2s", self.up.name, count, self.up.total(count))
        return found


COUNTER_BYTES = 8
"""A class count is a 64-bit integer, as it is in memory."""


def histograms(clients: Sequence[int], classes: int) -> SetupCost:
    """Clients send the server their number of samples of each class."""
    return SetupCost(clients, up=SetupTransfer("histogram", COUNTER_BYTES * classes))
