"""Where the tensors of a round lie in the memory that all processes share: one row each.

A task may be done again when its worker died, so it never writes to what it reads first. A whole trip reads the start
of its route and then goes on in rows of its own. Trips that are cut into waves take turns between two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from fedrelay.local.hop import PlannedHop, planned_hop
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.overlay import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan

Pair = tuple[int, int]
"""Rows before and after a turn."""


@dataclass(frozen=True)
class HopBuffers:
    """One turn and the rows of its tensors, in the order of the job's names."""

    turn: PlannedHop
    model: Pair
    state: tuple[Pair, ...] = ()
    payload: tuple[Pair, ...] = ()
    received_model: int | None = None
    """Where somebody looks at the model that the client receives."""

    @property
    def before(self) -> Iterator[int]:
        """The rows that are read."""
        return (before for before, _ in (self.model, *self.state, *self.payload))

    @property
    def after(self) -> Iterator[int]:
        """The rows that are written."""
        yield from (after for _, after in (self.model, *self.state, *self.payload))
        if self.received_model is not None:
            yield self.received_model


@dataclass(frozen=True)
class BufferLayout:
    """The rows of a round, numbered one kind after another."""

    job: TrainingJob
    plan: RoundPlan
    overlay: ExecutionOverlay
    started: tuple[int, ...]
    """Routes that set off with a model of their own."""

    @cached_property
    def waves(self) -> bool:
        """Whether all hops of a step come before those of the next one."""
        return self.job.goes_in_waves(self.plan)

    @cached_property
    def clients(self) -> dict[int, int]:
        """Every client of the round and its number in it."""
        visited = dict.fromkeys(client for route in self.plan.routes for client in route.clients)
        return {client: number for number, client in enumerate(visited)}

    @cached_property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """Name of each kind of rows → (first row, how many)."""
        routes, visited, twice = len(self.plan.routes), len(self.clients), 2 if self.waves else 1
        counts = {"round": 1, "start": len(self.started), "model": twice * routes}
        counts |= {f"server {name}": 1 for name in self.job.names("server")}
        counts |= {f"first {name}": 1 + len(self.started) for name in self.job.names("payload")}
        counts |= {f"payload {name}": twice * routes for name in self.job.names("payload")}
        counts |= {f"state {name}": visited for name in self.job.names("state")}
        counts |= {f"kept {name}": routes if self.waves else visited for name in self.job.names("state")}
        counts["received_model"] = len(self.overlay.taps)
        first, found = 0, {}
        for kind, count in counts.items():
            found[kind] = (first, count)
            first += count
        return found

    @property
    def rows(self) -> int:
        """All rows together."""
        return sum(count for _, count in self.kinds.values())

    def row(self, kind: str, number: int = 0) -> int:
        """One row."""
        first, count = self.kinds[kind]
        assert number < count
        return first + number

    def turn(self, kind: str, route: int, index: int) -> int:
        """Where a route has its model, or a piece of baggage, after a turn."""
        return self.row(kind, (index % 2) * len(self.plan.routes) + route if self.waves else route)

    def home(self, kind: str, route: int) -> int:
        """Where it is after the last turn."""
        return self.turn(kind, route, len(self.plan.routes[route].clients) - 1)

    def start(self, route: int) -> int:
        """The model with which a route sets off."""
        return self.row("start", self.started.index(route)) if route in self.started else self.row("round")

    def first(self, name: str, route: int) -> int:
        """The baggage with which a route sets off."""
        return self.row(f"first {name}", 1 + self.started.index(route) if route in self.started else 0)

    def stop(self, hop: Hop) -> HopBuffers:
        """The rows of a hop."""
        first = hop.index == 0
        came = self.start(hop.route) if first else self.turn("model", hop.route, hop.index - 1)
        place = (hop.route, hop.index)
        return HopBuffers(
            planned_hop(self.plan, self.overlay, hop),
            (came, self.turn("model", hop.route, hop.index)),
            tuple(self._state(name, hop) for name in self.job.names("state")),
            tuple(self._baggage(name, hop) for name in self.job.names("payload")),
            self.row("received_model", self.overlay.taps.index(place)) if place in self.overlay.taps else None,
        )

    def _state(self, name: str, hop: Hop) -> Pair:
        number = self.clients[hop.client]
        if self.waves:
            return self.row(f"state {name}", number), self.row(f"kept {name}", hop.route)
        kept = self.row(f"kept {name}", number)
        again = hop.client in self.plan.routes[hop.route].clients[: hop.index]
        return (kept if again else self.row(f"state {name}", number)), kept

    def _baggage(self, name: str, hop: Hop) -> Pair:
        kind = f"payload {name}"
        before = self.turn(kind, hop.route, hop.index - 1) if hop.index else self.first(name, hop.route)
        return before, self.turn(kind, hop.route, hop.index)

    @cached_property
    def wavefront(self) -> list[list[tuple[int, int]]]:
        """For each step, (route, index) of its hops."""
        steps = self.plan.steps
        found: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(max(each, default=-1) for each in steps))]
        for number, each in enumerate(steps):
            for index, step in enumerate(each):
                found[step].append((number, index))
        return found
