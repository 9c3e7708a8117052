"""Where the tensors of a round are in the memory that all processes share: one row each.

A work item may be run again when its worker died, so it never writes to a row that it reads first. A whole route reads
its start and then continues in its own rows. Routes that run in waves alternate between two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from fedrelay.local.hop import PlannedHop, planned_hop
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.execution import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan

Pair = tuple[int, int]
"""The rows before and after a hop."""


@dataclass(frozen=True)
class HopBuffers:
    """One hop and the rows of its tensors, in the order of the job's tensor names."""

    planned: PlannedHop
    model: Pair
    client_state: tuple[Pair, ...] = ()
    payload: tuple[Pair, ...] = ()
    received_model: int | None = None
    """A row for a copy of the received model, if the hop is observed."""

    @property
    def reads(self) -> Iterator[int]:
        return (before for before, _ in (self.model, *self.client_state, *self.payload))

    @property
    def writes(self) -> Iterator[int]:
        yield from (after for _, after in (self.model, *self.client_state, *self.payload))
        if self.received_model is not None:
            yield self.received_model


@dataclass(frozen=True)
class BufferLayout:
    """The rows of a round, one kind after another."""

    job: TrainingJob
    plan: RoundPlan
    overlay: ExecutionOverlay
    started: tuple[int, ...]
    """Routes that start with their own model."""

    @cached_property
    def waves(self) -> bool:
        """Whether all hops of a step come before those of the next step."""
        return self.job.needs_waves(self.plan)

    @cached_property
    def clients(self) -> dict[int, int]:
        """Each client of the round → its number in the round."""
        clients = dict.fromkeys(client for route in self.plan.routes for client in route.clients)
        return {client: number for number, client in enumerate(clients)}

    @cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """Each kind of rows → (first row, number of rows)."""
        routes, clients, twice = len(self.plan.routes), len(self.clients), 2 if self.waves else 1
        payloads, states = self.job.tensor_names(Payload), self.job.tensor_names(ClientState)
        counts = {"round": 1, "start": len(self.started), "model": twice * routes}
        counts |= {f"server {name}": 1 for name in self.job.tensor_names(ServerState)}
        counts |= {f"payload start {name}": 1 + len(self.started) for name in payloads}
        counts |= {f"payload {name}": twice * routes for name in payloads}
        counts |= {f"state {name}": clients for name in states}
        counts |= {f"new state {name}": routes if self.waves else clients for name in states}
        counts["received model"] = len(self.overlay.taps)
        first, found = 0, {}
        for kind, count in counts.items():
            found[kind] = (first, count)
            first += count
        return found

    @property
    def row_count(self) -> int:
        return sum(count for _, count in self.ranges.values())

    def row(self, kind: str, number: int = 0) -> int:
        first, count = self.ranges[kind]
        assert number < count
        return first + number

    def after_hop(self, kind: str, route: int, index: int) -> int:
        """The row of a route's model, or of one of its payloads, after a hop."""
        return self.row(kind, (index % 2) * len(self.plan.routes) + route if self.waves else route)

    def after_last_hop(self, kind: str, route: int) -> int:
        return self.after_hop(kind, route, len(self.plan.routes[route].clients) - 1)

    def start(self, route: int) -> int:
        """The row of the model that a route starts with."""
        return self.row("start", self.started.index(route)) if route in self.started else self.row("round")

    def payload_start(self, name: str, route: int) -> int:
        """The row of the payload that a route starts with."""
        return self.row(f"payload start {name}", 1 + self.started.index(route) if route in self.started else 0)

    def of_hop(self, hop: Hop) -> HopBuffers:
        place, taps = (hop.route, hop.index), self.overlay.taps
        before = self.after_hop("model", hop.route, hop.index - 1) if hop.index else self.start(hop.route)
        return HopBuffers(
            planned_hop(self.plan, self.overlay, hop),
            (before, self.after_hop("model", hop.route, hop.index)),
            tuple(self._client_state(name, hop) for name in self.job.tensor_names(ClientState)),
            tuple(self._payload(name, hop) for name in self.job.tensor_names(Payload)),
            self.row("received model", taps.index(place)) if place in taps else None,
        )

    def _client_state(self, name: str, hop: Hop) -> Pair:
        number = self.clients[hop.client]
        if self.waves:
            return self.row(f"state {name}", number), self.row(f"new state {name}", hop.route)
        new = self.row(f"new state {name}", number)
        again = hop.client in self.plan.routes[hop.route].clients[: hop.index]
        return (new if again else self.row(f"state {name}", number)), new

    def _payload(self, name: str, hop: Hop) -> Pair:
        kind = f"payload {name}"
        before = self.after_hop(kind, hop.route, hop.index - 1) if hop.index else self.payload_start(name, hop.route)
        return before, self.after_hop(kind, hop.route, hop.index)

    @cached_property
    def hops_by_step(self) -> list[list[tuple[int, int]]]:
        """For each step, (route, index) of its hops."""
        steps = self.plan.steps
        found: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(max(each, default=-1) for each in steps))]
        for number, each in enumerate(steps):
            for index, step in enumerate(each):
                found[step].append((number, index))
        return found
