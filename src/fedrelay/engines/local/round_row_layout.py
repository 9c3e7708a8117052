"""Where the tensors of a round are in the memory that all processes share: one row each, in the order of first use.

A work item may be run again when its worker died, so it never writes to a row that it reads first. A whole route reads
its start and then continues in its own rows. Routes that run in waves alternate between two rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from fedrelay.local.hop_runner import HopInstructions, instructions_for_hop
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan

Pair = tuple[int, int]
"""The rows before and after a hop."""


class HopTensorRows(NamedTuple):
    """One hop and the rows of its tensors, in the order of the job's tensor names.

    A tuple, because workers receive one for each of their hops.
    """

    instructions: HopInstructions
    model: Pair
    client_state: tuple[Pair, ...] = ()
    payload: tuple[Pair, ...] = ()
    received_model: int | None = None
    """A row for a copy of the received model, if the hop is observed."""

    def packed(self) -> tuple[Any, ...]:
        """The same without classes: pickle takes a third of the time."""
        (hop, visited, tamper), *rows = self
        place = (hop.round, hop.route, hop.index, hop.client, hop.attempt, hop.route_length)
        return *place, visited, tamper, *rows

    @classmethod
    def unpacked(cls, values: tuple[Any, ...]) -> HopTensorRows:
        """What `packed` was called on."""
        return cls(HopInstructions(Hop(*values[:6]), *values[6:8]), *values[8:])

    @property
    def reads(self) -> Iterator[int]:
        return (before for before, _ in (self.model, *self.client_state, *self.payload))

    @property
    def writes(self) -> Iterator[int]:
        yield from (after for _, after in (self.model, *self.client_state, *self.payload))
        if self.received_model is not None:
            yield self.received_model


@dataclass
class RoundRowLayout:
    """The rows of a round. Row 0 is the model of the round."""

    job: TrainingJob
    plan: RoundPlan
    overlay: ExecutionOverlay
    started: Set[int]
    """Routes that start with their own model."""

    rows: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waves = self.job.needs_waves(self.plan)
        """Whether all hops of a step come before those of the next step."""
        self.client_states, self.payloads = self.job.tensor_names(ClientState), self.job.tensor_names(Payload)
        shared = [f"server {name}" for name in self.job.tensor_names(ServerState)]
        shared += [f"payload start {name}" for name in self.payloads]
        for kind in ("round", *shared):
            self.row(kind)

    @cached_property
    def clients(self) -> tuple[int, ...]:
        """All clients of the round, each once."""
        return tuple(dict.fromkeys(client for route in self.plan.routes for client in route.clients))

    def row(self, kind: str, number: int = -1) -> int:
        """The row of a tensor, by the number of its route or client; -1: all routes share it. The first call adds it.

        Memory is allocated when all work items are known, so rows can only be added before.
        """
        return self.rows.setdefault((kind, number), len(self.rows))

    def after_hop(self, kind: str, route: int, index: int) -> int:
        """The row of a route's model, or of one of its payloads, after a hop."""
        return self.row(kind, 2 * route + index % 2 if self.waves else route)

    def after_last_hop(self, kind: str, route: int) -> int:
        return self.after_hop(kind, route, len(self.plan.routes[route].clients) - 1)

    def start(self, route: int) -> int:
        """The row of the model that a route starts with."""
        return self.row("start", route) if route in self.started else self.row("round")

    def payload_start(self, name: str, route: int) -> int:
        """The row of the payload that a route starts with."""
        return self.row(f"payload start {name}", route if route in self.started else -1)

    def of_hop(self, hop: Hop) -> HopTensorRows:
        place, taps = (hop.route, hop.index), self.overlay.taps
        before = self.after_hop("model", hop.route, hop.index - 1) if hop.index else self.start(hop.route)
        return HopTensorRows(
            instructions_for_hop(self.plan, self.overlay, hop),
            (before, self.after_hop("model", hop.route, hop.index)),
            tuple([self._client_state(name, hop) for name in self.client_states]),
            tuple([self._payload(name, hop) for name in self.payloads]),
            self.row("received model", taps.index(place)) if place in taps else None,
        )

    def _client_state(self, name: str, hop: Hop) -> Pair:
        if self.waves:
            return self.row(f"state {name}", hop.client), self.row(f"new state {name}", hop.route)
        new = self.row(f"new state {name}", hop.client)
        again = hop.client in self.plan.routes[hop.route].clients[: hop.index]
        return (new if again else self.row(f"state {name}", hop.client)), new

    def _payload(self, name: str, hop: Hop) -> Pair:
        kind = f"payload {name}"
        before = self.after_hop(kind, hop.route, hop.index - 1) if hop.index else self.payload_start(name, hop.route)
        return before, self.after_hop(kind, hop.route, hop.index)

    @cached_property
    def hops_by_step(self) -> list[list[tuple[int, int]]]:
        """For each step, (route, index) of its hops."""
        steps = self.job.steps(self.plan)
        found: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(max(each, default=-1) for each in steps))]
        for number, each in enumerate(steps):
            for index, step in enumerate(each):
                found[step].append((number, index))
        return found
