"""The records of a run: what travelled, what that cost, what went wrong, how well the model did."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedrelay.cost.clock import VirtualTime
from fedrelay.cost.ledger import TransferTotals, ledger_line
from fedrelay.experiment.prepare import PreparedExperiment
from fedrelay.local.arrival import Arrival
from fedrelay.metrics.forgetting import backward_transfer, forgetting
from fedrelay.models.layout import FlatLayout
from fedrelay.robustness.fault_events import GIVEN_UP, REFUSED, FaultEvent, event_label, is_fault
from fedrelay.routes.overlay import ExecutedRound
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.result import Result, Row
from fedrelay.runtime.server import preview
from fedrelay.runtime.store import RunFolder, State


class Recorder:
    """The records of a run, in memory and, where there is a folder, on disk."""

    def __init__(self, setting: PreparedExperiment, folder: RunFolder | None) -> None:
        self.setting, self.folder = setting, folder
        self.history: list[Row] = folder.lines("metrics") if folder else []
        self.tally = TransferTotals()
        self.fault_events: Counter[str] = Counter()
        self.given_up = self.refused = 0
        for event in folder.lines("events") if folder else ():
            self._remember(event)
        self.attempts: list[tuple[RoundPlan, TransferTotals, VirtualTime]] = []
        self.unanswered: list[int] = []
        self.updates = self.longest_route = 0
        self.visits: Counter[int] = Counter()
        self.seconds = dict.fromkeys(VirtualTime(0.0, 0.0).named(), 0.0)
        timings = folder.lines("timings") if folder else []
        self.choosing = sum(line.get("choosing_seconds", 0.0) for line in timings)
        self.messages = sum(line.get("messages", 0) for line in timings)
        self.overhead = sum(line.get("overhead", 0.0) for line in timings)
        self.waits: list[float] = []
        """Overheads of the round under way, where hops are messages."""
        opening = setting.opening()
        for line in folder.lines("ledger") if folder else [opening] if opening else []:
            self._count(line)

    def travelled(self, executed: ExecutedRound, unanswered: Sequence[int]) -> None:
        """Note one attempt at a round: what travelled, how long that would have taken, and who never answered."""
        plan, overhead = executed.plan, executed.overhead
        times = self.setting.virtual_time(plan, overhead, executed.seconds)
        self.attempts.append((plan, self.setting.tally(plan, overhead), times))
        self.unanswered += unanswered

    def happened(self, fault_events: Sequence[FaultEvent]) -> None:
        """Note what went wrong."""
        for fault_event in fault_events:
            event = replace(fault_event, node=self.setting.node(fault_event.client)).line()
            self._remember(event)
            self._append("events", event)

    def _remember(self, event: Row) -> None:
        """Count something that went wrong, and how it ended."""
        self.fault_events.update([event_label(event)] if is_fault(event) else ())
        self.given_up += event["done"] == GIVEN_UP
        self.refused += event["done"].startswith(REFUSED)

    def waited(self, arrivals: Sequence[Arrival]) -> None:
        """Note how long hops took beside the clients' own time, where they are messages."""
        hops = (hop for arrival in arrivals for hop in arrival.hops)
        self.waits += [hop.overhead for hop in hops if hop.overhead is not None]

    def round_over(self) -> None:
        """Enter a round into the ledger, with all attempts at it."""
        plans, tallies, times = zip(*self.attempts, strict=True)
        self.attempts, plan = [], plans[-1]
        routes = [route.clients for route in plan.routes]
        updates, longest = sum(plan.client_updates for plan in plans), max(plan.longest for plan in plans)
        line = ledger_line(plan.round, sum(tallies, TransferTotals()), updates=updates, longest=longest, routes=routes)
        line |= VirtualTime.together(times).named()
        line |= {"handover": plan.handover, "merges": plan.merges}
        if any(route.slot is not None for route in plan.routes):
            line["slots"] = [route.slot for route in plan.routes]
        if self.unanswered:
            line["unanswered"], self.unanswered = self.unanswered, []
        self._count(line)
        self._append("ledger", line)

    def _count(self, line: Row) -> None:
        """Add a line of the ledger to the sums."""
        self.tally += TransferTotals(line["s2c"], line["c2s"], line["c2c"], line["bytes"], line.get("payloads", {}))
        self.updates += line["client_updates"]
        self.longest_route = max(self.longest_route, line["longest_route"])
        self.seconds = {name: seconds + line.get(name, 0.0) for name, seconds in self.seconds.items()}
        for clients in (*line.get("routes", ()), line.get("unanswered", ())):
            self.visits.update(clients)  # whoever was sent a model may have trained it, answer or not

    def judged(self, round: int, metrics: Row) -> Row:
        """Note an evaluation beside what it has cost so far."""
        costs: Row = {**self.tally.counts(), "bytes": self.tally.bytes, "client_updates": self.updates}
        costs["virtual_seconds"] = self.seconds["virtual_seconds"]
        if spent := self.setting.privacy(self.visits):
            costs["epsilon"] = spent["epsilon_max"] if math.isfinite(spent["epsilon_max"]) else None
        row = {"round": round, **metrics, **costs}
        self.history.append(row)
        self._append("metrics", row)
        return row

    def followed(self, round: int, arrival: Arrival) -> None:
        """Note what a model still knew of its clients after every hop."""
        rows = [list(hop.recall) for hop in arrival.hops]
        square = [row + [0.0] * (len(rows) - len(row)) for row in rows]
        lost = forgetting(square)
        line: Row = {"round": round, "clients": list(arrival.clients), "matrix": rows}
        line |= {"backward_transfer": backward_transfer(square), "forgetting": None if lost is None else lost.tolist()}
        self._append("forgetting", line)

    def timing(self, round: int, seconds: float) -> None:
        """Note how long a round took, and how much of it was spent on choosing clients and on messages."""
        line: Row = {"round": round, "seconds": float(f"{seconds:.4f}")}
        if choosing := self.setting.choosing_seconds(round):
            self.choosing += choosing
            line["choosing_seconds"] = float(f"{choosing:.4f}")
        if self.waits:
            line |= {"messages": len(self.waits), "overhead": float(f"{sum(self.waits):.4f}")}
            self.messages, self.overhead = self.messages + len(self.waits), self.overhead + sum(self.waits)
            self.waits = []
        self._append("timings", line)

    def result(self, state: State) -> Result:
        """All of it, with the model."""
        layout: FlatLayout = self.setting.layout
        weights = preview(self.setting, state)
        model: dict[str, Tensor] = layout.state_dict(weights)
        return Result(
            experiment=self.setting.experiment,
            history=self.history,
            weights=weights,
            model=model,
            rounds=state.round,
            client_updates=self.updates,
            longest_route=self.longest_route,
            transfers=self.tally.counts(),
            bytes=self.tally.bytes,
            seconds=state.seconds,
            fault_events=dict(sorted(self.fault_events.items())),
            choosing_seconds=self.choosing,
            attack=self.setting.attack,
            privacy=self.setting.privacy(self.visits),
            **self.seconds,
            hop_overhead=self.overhead / self.messages if self.messages else None,
            run=self.folder.path if self.folder else None,
        )

    def _append(self, stream: str, row: dict[str, Any]) -> None:
        if self.folder:
            self.folder.append(stream, row)
