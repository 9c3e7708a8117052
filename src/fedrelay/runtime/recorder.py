"""The records of a run: what travelled, what that cost, what went wrong, how accurate the model is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from fedrelay.cost.ledger import TransferTotals, ledger_line
from fedrelay.cost.time_model import VirtualTime, one_after_another
from fedrelay.data.client_class_counts import MOST_CLIENTS, ClientClassCounts, count_classes
from fedrelay.data.client_names import known_client_names
from fedrelay.data.holdout import without_pooling
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.engines.start import node_names
from fedrelay.experiment.prepare import PreparedRun
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.local.client_evaluation import ClientEvaluation
from fedrelay.metrics.forgetting import backward_transfer, forgetting
from fedrelay.robustness.executed_round import unanswered
from fedrelay.robustness.fault_events import (
    GIVEN_UP,
    REFUSED,
    REMARKS,
    UNDEFINED_METRIC,
    FaultEvent,
    event_label,
    is_fault,
)
from fedrelay.robustness.label_flip import LabelFlippedFederation
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.execution_overlay import FaultCosts
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import BestModel, Result
from fedrelay.runtime.run_folder import RunFolder
from fedrelay.runtime.run_folder_reader import CLASS_COUNTS, PROBE, PROFILES, SELECTION
from fedrelay.runtime.run_state import BestSoFar, RunState
from fedrelay.user_code import is_built_in
from fedrelay.utc_time import utc_now

MOST_CLIENTS_WITH_STORED_GROUPS = 10_000
"""Random groups of more clients are not stored: a run visits few of them, and they follow from the seed."""


class Recorder:
    """The records of a run, in memory and, where there is a folder, on disk."""

    def __init__(self, run: PreparedRun, folder: RunFolder | None) -> None:
        self.prepared, self.planner, self.costs = run
        self.folder = folder
        self.nodes = node_names(self.prepared.experiment, self.prepared.federation)
        self.history: list[Row] = folder.lines("metrics") if folder else []
        self.final: Row = folder.final_metrics if folder else {}
        """The metrics of the end of the run on all samples, where rows of the history are on some of them."""

        self.clients: list[Row] = folder.lines("client_metrics") if folder else []
        self.client_resamples: list[Row] = folder.lines("client_resamples") if folder else []
        self.fault_events: Counter[str] = Counter()
        self.given_up = self.refused = 0
        self.remarks: set[str] = set()
        """Remarks that were noted. They come again: from the engine of every phase, in every round, after a resume."""
        for event in folder.lines("events") if folder else ():
            self._count_event(event)
        self.attempts: list[tuple[RoundPlan, TransferTotals, VirtualTime]] = []
        """What the attempts at the round under way cost."""
        self.unanswered: list[int] = []
        self.overheads: list[float] = []
        """Seconds of each hop of the round under way beside the client's own, where hops are messages."""
        self.transfers = TransferTotals()
        self.updates = self.longest_route = 0
        self.hops: Counter[int] = Counter()
        self.seconds = VirtualTime()._asdict()
        setup = self.costs.setup_line()
        for line in folder.lines("ledger") if folder else [setup] if setup else []:
            self._count_costs(line)
        timings = folder.lines("timings") if folder else []
        self.selection_seconds = sum(line.get("selection_seconds", 0.0) for line in timings)
        self.messages = sum(line.get("messages", 0) for line in timings)
        self.overhead = sum(line.get("overhead", 0.0) for line in timings)

    def add_attempt(
        self, plan: RoundPlan, fault_costs: FaultCosts, arrivals: Sequence[Arrival], elapsed: float
    ) -> None:
        """Note what one attempt at a round cost; `elapsed` are its seconds by the real clock."""
        times = self.costs.virtual_time(plan, fault_costs, elapsed)
        self.attempts.append((plan, self.costs.transfers(plan, fault_costs), times))
        self.unanswered += unanswered(arrivals)
        hops = (hop for arrival in arrivals for hop in arrival.hops)
        self.overheads += [hop.overhead_seconds for hop in hops if hop.overhead_seconds is not None]

    def add_events(self, events: Sequence[FaultEvent]) -> list[FaultEvent]:
        """Note what went wrong, and each remark once in a run; returns the events that were noted."""
        noted = []
        for each in events:
            named = 0 <= each.client < len(self.nodes)
            event = replace(each, node=self.nodes[each.client] if named else "").line()
            if _remark(event) not in self.remarks:
                self._count_event(event)
                self._append("events", event)
                noted.append(each)
        return noted

    def _count_event(self, event: Row) -> None:
        self.fault_events.update([event_label(event)] if is_fault(event) else ())
        self.remarks |= {text for text in (_remark(event),) if text}
        self.given_up += event["done"] == GIVEN_UP
        self.refused += event["done"].startswith(REFUSED)

    def add_costs(self) -> None:
        """Enter a round into the ledger, with all attempts at it."""
        plans, totals, times = zip(*self.attempts, strict=True)
        self.attempts, plan = [], plans[-1]
        routes = [route.clients for route in plan.routes]
        updates, longest = sum(plan.client_updates for plan in plans), max(plan.longest for plan in plans)
        line = ledger_line(plan.round, sum(totals, TransferTotals()), updates=updates, longest=longest, routes=routes)
        line |= one_after_another(times)._asdict()
        line |= {"handover": plan.handover, "merges": plan.merges}
        if self.nodes:
            line["nodes"] = [[self.nodes[client] for client in clients] for clients in routes]
        if any(route.slot is not None for route in plan.routes):
            line["slots"] = [route.slot for route in plan.routes]
        if self.unanswered:
            line["unanswered"], self.unanswered = self.unanswered, []
        self._count_costs(line)
        self._append("ledger", line)

    def _count_costs(self, line: Row) -> None:
        """Add a line of the ledger to the sums."""
        self.transfers += TransferTotals(line["s2c"], line["c2s"], line["c2c"], line["bytes"], line.get("payloads", {}))
        self.updates += line["client_updates"]
        self.longest_route = max(self.longest_route, line["longest_route"])
        self.seconds = {name: seconds + line.get(name, 0.0) for name, seconds in self.seconds.items()}
        for clients in (*line.get("routes", ()), line.get("unanswered", ())):
            self.hops.update(clients)  # a client that was sent a model may have trained it without an answer

    def costs_so_far(self) -> Row:
        """What the run has cost so far, with its setup."""
        counts: Row = {**self.transfers.counts(), "bytes": self.transfers.bytes, "client_updates": self.updates}
        return {**counts, "virtual_seconds": self.seconds["virtual_seconds"]}

    def evaluation_row(self, round: int, metrics: Row) -> Row:
        """The metrics of a round beside what the run has cost so far."""
        costs = self.costs_so_far()
        if spent := self.costs.privacy(self.hops):
            costs["epsilon"] = spent["epsilon_max"] if math.isfinite(spent["epsilon_max"]) else None
        return {"round": round, **metrics, **costs}

    def add_evaluation(self, row: Row) -> None:
        """Note the row of an evaluated round."""
        self.history.append(row)
        self._append("metrics", row)

    def add_final_evaluation(self, row: Row) -> None:
        """Note the evaluation on all samples at the end of the run."""
        self.final = row
        self._append("final_metrics", row)

    def has_clients_of(self, round: int) -> bool:
        """Whether single clients were evaluated in a round."""
        return bool(self.clients) and self.clients[-1]["round"] == round

    def add_client(self, row: Row) -> None:
        """Note the row of a client in an evaluation of single clients."""
        self.clients.append(row)
        self._append("client_metrics", row)

    def add_client_resamples(self, row: Row) -> None:
        """Note a client's scores on resamples of its held-out samples."""
        self.client_resamples.append(row)
        self._append("client_resamples", row)

    def add_evaluation_costs(self, round: int, found: Mapping[int, ClientEvaluation], *, own_models: bool) -> None:
        """Enter an evaluation of single clients into the ledger."""
        sent = {
            each.client: each.sums.bytes + (each.fine_tuned.bytes if each.fine_tuned is not None else 0)
            for each in found.values()
        }
        if line := self.costs.evaluation_line(round, sent, own_models=own_models):
            self._count_costs(line)
            self._append("ledger", line)

    def add_followed_route(self, round: int, arrival: Arrival) -> None:
        """Note what a model still knew of its clients after every hop."""
        rows = [list(hop.accuracy_on_visited) for hop in arrival.hops]
        square = [row + [0.0] * (len(rows) - len(row)) for row in rows]
        lost = forgetting(square)
        line: Row = {"round": round, "clients": list(arrival.clients), "matrix": rows}
        line |= {"backward_transfer": backward_transfer(square), "forgetting": None if lost is None else lost.tolist()}
        self._append("forgetting", line)

    def add_timing(self, round: int, seconds: float, started: str) -> None:
        """Note when a round was run and how long it took, and how much of it for selecting clients and messages."""
        line: Row = {"round": round, "seconds": float(f"{seconds:.4f}"), "started": started, "ended": utc_now()}
        if selecting := self.planner.selection_seconds(round):
            self.selection_seconds += selecting
            line["selection_seconds"] = float(f"{selecting:.4f}")
        if self.overheads:
            line |= {"messages": len(self.overheads), "overhead": float(f"{sum(self.overheads):.4f}")}
            self.messages, self.overhead = self.messages + len(self.overheads), self.overhead + sum(self.overheads)
            self.overheads = []
        self._append("timings", line)

    def result(self, state: RunState, weights: Tensor, best: BestSoFar | None = None) -> Result:
        """All records, with the model `weights`, and the best model where there is one."""
        return Result(
            experiment=self.prepared.experiment,
            training=self.prepared.method.training,
            task=self.prepared.task_facts,
            history=self.history,
            weights=weights,
            model=self.prepared.state_dict(weights),
            rounds=state.round,
            client_updates=self.updates,
            longest_route=self.longest_route,
            transfers=self.transfers.counts(),
            bytes=self.transfers.bytes,
            seconds=state.seconds,
            fault_events=dict(sorted(self.fault_events.items())),
            selection_seconds=self.selection_seconds,
            attack=attack_facts(self.prepared),
            privacy=self.costs.privacy(self.hops),
            **self.seconds,
            hop_overhead=self.overhead / self.messages if self.messages else None,
            run=self.folder.path if self.folder else None,
            stopped=state.stopped,
            best_found=self._best_model(best) if best is not None else None,
            final=self.final,
            client_rows=tuple(self.clients),
            client_resamples=tuple(self.client_resamples),
        )

    def _best_model(self, best: BestSoFar) -> BestModel:
        row = next(row for row in self.history if row["round"] == best.round) | self.final.get("best", {})
        value = best.value if row.get(best.metric) is None else row[best.metric]  # chosen on a subset, measured on all
        return BestModel(best.round, best.metric, value, self.prepared.state_dict(best.weights), row)

    def _append(self, stream: str, row: Row) -> None:
        if self.folder:
            self.folder.append(stream, row)


def _remark(event: Row) -> str:
    """What a remark is about, whatever its round; empty for other events.

    Why a metric is undefined, in brackets, may differ from round to round.
    """
    about = event["done"].partition(" (")[0] if event["what"] == UNDEFINED_METRIC else event["done"]
    return f"{event.get('node', event['client'])}: {about}" if event["what"] in REMARKS else ""


def plan_summary(run: PreparedRun) -> dict[str, Any]:
    """What is known before the first round, as `plan.json` has it."""
    prepared, planner, costs = run
    attack = attack_facts(prepared)
    nodes = node_names(prepared.experiment, prepared.federation)
    names = nodes or known_client_names(without_pooling(prepared.federation))
    return {
        "clients": prepared.federation.client_count,
        **({"client_names": list(names)} if names else {}),
        "groups": stored_groups(prepared),
        "group_count": len(prepared.groups),
        "payloads": costs.payloads,
        "parameters": prepared.layout.trained_size,
        "setup": costs.setup_line(),
        "first_round": costs.total([planner.plan(1)]),
        **({"attack": attack} if attack else {}),
    }


def stored_groups(prepared: PreparedExperiment) -> list[list[int]] | None:
    """The groups for `plan.json`; None for random groups of very many clients, which are formed again when needed."""
    grouping = prepared.method.grouping
    drawn = grouping is not None and grouping.assign == "random" and is_built_in(type(grouping))
    if drawn and prepared.federation.client_count > MOST_CLIENTS_WITH_STORED_GROUPS:
        return None
    return [list(group) for group in prepared.groups]


def setup_files(prepared: PreparedExperiment) -> dict[str, bytes]:
    """What a run folder stores once: profiles, which are never computed again, and class counts for reports."""
    counts = _class_counts(prepared)
    files = {CLASS_COUNTS: counts.to_bytes()} if counts is not None else {}
    at_nodes = prepared.experiment.data_at_nodes  # then owners may stop sharing
    for name, found in ((PROFILES, prepared.profiling), (SELECTION, prepared.selection)):
        if found is not None and (found.setup is not None or (at_nodes and found.vectors.size)):
            vectors = torch.from_numpy(np.ascontiguousarray(found.vectors))
            files[name] = tensors_to_bytes({"clients": torch.tensor(prepared.holders()), "vectors": vectors})
            files |= {PROBE: tensors_to_bytes(dict(found.probe))} if found.probe else {}
    return files


def _class_counts(prepared: PreparedExperiment) -> ClientClassCounts | None:
    """The class counts of the clients, where they are few and quickly counted."""
    federation = prepared.federation
    if prepared.experiment.data_at_nodes or not federation.in_memory or not federation.class_count:
        return None
    clients = without_pooling(federation)
    if clients.client_count > MOST_CLIENTS:
        return None
    return replace(count_classes(clients, first=True), test_samples=federation.test.size)


def attack_facts(prepared: PreparedExperiment) -> dict[str, Any]:
    """Which clients attack, and how much; empty where none does."""
    federation = prepared.federation
    below = federation.inner if isinstance(federation, FederationWithPublicSamples) else federation
    return below.facts() if isinstance(below, LabelFlippedFederation) else {}
