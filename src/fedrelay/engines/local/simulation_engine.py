"""The engine of simulations: it turns a plan into work items for an executor, on one machine or on a Ray cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from fedrelay.data.evaluation_samples import EvaluationSet, evaluation_samples
from fedrelay.data.holdout import held_out_samples
from fedrelay.data.samples import Rows
from fedrelay.engines.base import Engine, EngineEvent, RoundInputs
from fedrelay.engines.local.executor import (
    AssignableTensorRows,
    ForkedExecutor,
    InlineExecutor,
    TensorRows,
    WorkerContext,
    WorkItemExecutor,
    forking_is_safe,
    one_thread,
)
from fedrelay.engines.local.round_row_layout import HopTensorRows, RoundRowLayout
from fedrelay.engines.local.route_batches import RouteBatch, batch_routes
from fedrelay.errors import DivergedError
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.local.client_evaluation import ClientEvaluation, ClientEvaluationSettings
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.evaluation import Chunk, chunks_of, evaluate_chunk
from fedrelay.local.hop_context import HopContext
from fedrelay.local.hop_runner import describe_errors
from fedrelay.local.state_until_merge import state_after_merges, with_merge_number
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop, check_weights
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan, Route
from fedrelay.tasks.base import EvaluationSums

SETUP_ROUND = 0
"""The round number of everything before the first round; it keys the randomness of that work."""

PROFILES_PER_WORKER = 4
"""Profiles are returned after this many work items per worker: often enough to show progress, and all stay busy."""

MODELS_AT_ONCE = 64
"""Models in shared memory, where every client has its own."""

CLIENTS_OF_AN_ITEM = 8
"""Clients that a work item evaluates: fine-tuning batches their models."""

Reports = dict[int, list[HopReport]]
"""Number of a route → the reports of its hops, in their order."""


def start_local(job: TrainingJob, workers: int, client_states: ClientStateStore | None = None) -> Engine:
    """The local engine with this many worker processes; 0 = one per core.

    With one worker, on other systems than Linux, or on another device than the CPU, everything runs in this process.
    """
    count = workers or cores()
    forks = count > 1 and can_fork(job.train.device)
    return SimulationEngine(job, ForkedExecutor(job, count) if forks else InlineExecutor(job), client_states)


def can_fork(device: str) -> bool:
    """Whether processes that compute on this device may be forked: others than the CPU do not survive it."""
    return forking_is_safe() and torch.device(device).type == "cpu"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SimulationEngine:
    """Runs all work items with an executor."""

    def __init__(
        self, job: TrainingJob, executor: WorkItemExecutor, client_states: ClientStateStore | None = None
    ) -> None:
        self.job = job
        self.executor = executor
        self.client_states = client_states or ClientStateStore()
        self.new_client_states: tuple[int, dict[int, Mapping[str, Tensor]]] = (0, {})
        """The last round, and the states of its clients at its end."""
        # Without batched models, route batches gain nothing and leave workers idle.
        _, self.lanes = batched_model_for(job)

    def run_round(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        moving = {number for number, route in enumerate(plan.routes) if route.clients}
        layout = RoundRowLayout(self.job, plan, overlay, moving & inputs.starts.keys())
        work = list(self._work_items(layout, inputs.typical_hop))
        rows = self.executor.allocate(len(layout.rows))
        self._write_inputs(layout, rows, inputs)
        reports: Reports = {number: [] for number in moving}
        for step, items in enumerate(work):
            for result in self.executor.run_all(items):
                for number, found in result.items():
                    reports[number] += found
            if layout.waves:
                self._update_client_state(layout, rows, layout.hops_by_step[step], reports)
        self.new_client_states = plan.round, self._read_client_states(layout, rows, inputs.merges)
        payload_sizes = self.job.tensor_sizes(Payload)
        return [
            Arrival(
                number,
                route.clients,
                rows[layout.after_last_hop("model", number)],
                tuple(reports[number]),
                {
                    name: rows[layout.after_last_hop(f"payload {name}", number)][:size]
                    for name, size in payload_sizes.items()
                },
                {
                    index: rows[layout.row("received model", place)]
                    for place, (tapped_route, index) in enumerate(overlay.taps)
                    if tapped_route == number
                },
            )
            for number, route in enumerate(plan.routes)
            if number in moving
        ]

    def commit_client_state(self) -> None:
        round, states = self.new_client_states
        for client, tensors in states.items():
            self.client_states.put(round, client, tensors)

    def profile_clients(
        self, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        """Clients that train are batched, the others run alone; those with the most samples come first."""
        self._write_models([weights])
        plan = RoundPlan(SETUP_ROUND, tuple(Route((client,)) for client in clients))
        batches = batch_routes(plan, self.job.federation.sample_count, self.lanes if profiler.trains else 1)
        items = [ProfileClients(profiler, batch) for batch in batches]
        step = PROFILES_PER_WORKER * self.executor.parallelism
        for begin in range(0, len(items), step):
            for profiles in self.executor.run_all(items[begin : begin + step]):
                yield from profiles

    def evaluate(self, weights: Tensor, on: EvaluationSet = "test", rows: Rows | None = None) -> EvaluationSums:
        """Evaluate chunks side by side; their sums are added in order."""
        self._write_models([weights])
        chunks = chunks_of(evaluation_samples(self.job.federation, on), rows)
        items = [EvaluateChunk(chunk, on) for chunk in chunks]
        first, *others = self.executor.run_all(items)
        return sum(others, first)

    def evaluate_models(
        self, models: Sequence[Tensor], on: EvaluationSet = "test", rows: Rows | None = None
    ) -> list[EvaluationSums]:
        """Some models at a time, so that they need not all fit into shared memory."""
        chunks, found = chunks_of(evaluation_samples(self.job.federation, on), rows), []
        for begin in range(0, len(models), MODELS_AT_ONCE):
            part = models[begin : begin + MODELS_AT_ONCE]
            self._write_models(part)
            sums = self.executor.run_all(
                [EvaluateChunk(chunk, on, row) for row in range(len(part)) for chunk in chunks]
            )
            of_models = [sums[row * len(chunks) : (row + 1) * len(chunks)] for row in range(len(part))]
            found += [sum(others, first) for first, *others in of_models]
        return found

    def evaluate_clients(
        self, models: Tensor | Mapping[int, Tensor], wanted: ClientEvaluationSettings
    ) -> dict[int, ClientEvaluation]:
        """Several clients in each work item; which ones are together depends on the data alone."""
        held_out = held_out_samples(self.job.federation)
        assert held_out is not None, "no client has held-out samples"
        counts = dict(enumerate(held_out.counts))
        if isinstance(models, Tensor):
            clients = [client for client, count in counts.items() if count]
            self._write_models([models])
            return self._evaluate_rows(clients, [0] * len(clients), wanted)
        clients = [client for client in models if counts[client]]
        found: dict[int, ClientEvaluation] = {}
        for begin in range(0, len(clients), MODELS_AT_ONCE):
            part = clients[begin : begin + MODELS_AT_ONCE]
            self._write_models([models[client] for client in part])
            found |= self._evaluate_rows(part, range(len(part)), wanted)
        return found

    def _evaluate_rows(
        self, clients: Sequence[int], rows: Sequence[int], wanted: ClientEvaluationSettings
    ) -> dict[int, ClientEvaluation]:
        """Evaluate the model in a row on each client."""
        groups = [slice(begin, begin + CLIENTS_OF_AN_ITEM) for begin in range(0, len(clients), CLIENTS_OF_AN_ITEM)]
        items = [EvaluateClients(tuple(clients[group]), tuple(rows[group]), wanted) for group in groups]
        return {each.client: each for found in self.executor.run_all(items) for each in found}

    @one_thread()
    def _write_models(self, models: Sequence[Tensor]) -> None:
        rows = self.executor.allocate(len(models))
        for row, model in enumerate(models):
            rows[row] = model

    def take_events(self) -> list[EngineEvent]:
        return []

    def close(self) -> None:
        self.executor.close()

    def _work_items(self, layout: RoundRowLayout, typical: TypicalHop) -> Iterator[list[TrainRoutes]]:
        """What runs side by side: whole routes, or one wave after another."""
        server_state = tuple(layout.row(f"server {name}") for name in self.job.tensor_names(ServerState))
        batches = batch_routes(layout.plan, self.job.federation.sample_count, self.lanes, layout.overlay.attempt)
        if not layout.waves:
            whole = [tuple([layout.of_hop(hop) for hop in wave] for wave in batch.waves()) for batch in batches]
            yield [TrainRoutes(waves, server_state, typical) for waves in whole]
            return
        for hops in map(dict, layout.hops_by_step):
            waves = [[layout.of_hop(hop) for hop in batch.hops_at(hops)] for batch in batches]
            yield [TrainRoutes((wave,), server_state, typical) for wave in waves if wave]

    @one_thread()
    def _write_inputs(self, layout: RoundRowLayout, rows: AssignableTensorRows, inputs: RoundInputs) -> None:
        """Write everything that first hops read.

        A copy by several threads would be faster, but they go on spinning for milliseconds, on the workers' cores.
        """
        rows[layout.row("round")] = inputs.weights
        for route in layout.started:
            rows[layout.start(route)] = inputs.starts[route]
        for name in self.job.tensor_names(ServerState):
            rows[layout.row(f"server {name}")] = inputs.server.get(name, 0.0)
        for name in self.job.tensor_names(Payload):
            start = inputs.server.get(name, 0.0)
            rows[layout.row(f"payload start {name}")] = start
            for route in layout.started:
                rows[layout.payload_start(name, route)] = inputs.payload.get(route, {}).get(name, start)
        if names := self.job.tensor_names(ClientState):
            for client in layout.clients:
                state = state_after_merges(self.client_states.get(client), self.job.states_until_merge, inputs.merges)
                for name in names:
                    rows[layout.row(f"state {name}", client)] = state.get(name, 0.0)

    @one_thread()
    def _update_client_state(
        self, layout: RoundRowLayout, rows: AssignableTensorRows, hops: Sequence[tuple[int, int]], reports: Reports
    ) -> None:
        """After a step, clients take over their new state; if two routes reached a client, changes may add up."""
        routes = layout.plan.routes
        accepted = [(route, routes[route].clients[index]) for route, index in hops if not reports[route][index].refused]
        routes_at = Counter(client for _, client in accepted)
        for name, size in self.job.tensor_sizes(ClientState).items():
            row_of = {client: layout.row(f"state {name}", client) for client in routes_at}
            before = {client: rows[row][:size].clone() for client, row in row_of.items()}
            for route, client in accepted:
                row, new = row_of[client], rows[layout.row(f"new state {name}", route)][:size]
                add = routes_at[client] > 1 and name in self.job.additive_state
                rows[row] = rows[row][:size] + (new - before[client]) if add else new

    @one_thread()
    def _read_client_states(
        self, layout: RoundRowLayout, rows: AssignableTensorRows, merges: int
    ) -> dict[int, Mapping[str, Tensor]]:
        sizes, kind = self.job.tensor_sizes(ClientState), "state" if layout.waves else "new state"
        found = {
            client: {name: rows[layout.row(f"{kind} {name}", client)][:size].clone() for name, size in sizes.items()}
            for client in (layout.clients if sizes else ())
        }
        until_merge = self.job.states_until_merge
        return {client: with_merge_number(state, until_merge, merges) for client, state in found.items()}


@dataclass(frozen=True)
class TrainRoutes:
    """Train the models of a route batch along their routes, or one hop further.

    The item holds only row numbers; all tensors are in the shared rows.
    """

    waves: tuple[list[HopTensorRows], ...]
    server_state: tuple[int, ...] = ()
    typical: TypicalHop = NO_HOPS_YET

    def __reduce__(self) -> tuple[Any, ...]:
        waves = [[hop_rows.packed() for hop_rows in wave] for wave in self.waves]
        return TrainRoutes.unpacked, (waves, self.server_state, self.typical)

    @classmethod
    def unpacked(
        cls, waves: Sequence[Sequence[tuple[Any, ...]]], server_state: tuple[int, ...], typical: TypicalHop
    ) -> TrainRoutes:
        """The item that a worker receives."""
        hops = tuple([HopTensorRows.unpacked(values) for values in wave] for wave in waves)
        return cls(hops, server_state, typical)

    @property
    def reads(self) -> Sequence[int]:
        """The round's model, the server state, and the rows that hops read and no earlier hop wrote."""
        rows, written = dict.fromkeys((0, *self.server_state)), set[int]()
        for wave in self.waves:
            for hop_rows in wave:
                rows |= dict.fromkeys(row for row in hop_rows.reads if row not in written)
                written.update(hop_rows.writes)
        return tuple(rows)

    @property
    def writes(self) -> Sequence[int]:
        return tuple(dict.fromkeys(row for wave in self.waves for hop_rows in wave for row in hop_rows.writes))

    def split(self, max_waves: int) -> Sequence[TrainRoutes]:
        begins = range(0, len(self.waves), max_waves)
        return [replace(self, waves=self.waves[begin : begin + max_waves]) for begin in begins]

    def run(self, worker: WorkerContext) -> Reports:
        reports: Reports = {}
        server_state = _views(worker.rows, worker.job.tensor_sizes(ServerState), self.server_state)
        if len(self.waves) > 1:
            hops = (hop_rows.instructions.hop for wave in self.waves for hop_rows in wave)
            worker.hop_runner.trainer.sample_orders.draw_ahead(hops)
        for wave in self.waves:
            contexts = [hop_context(worker, hop_rows, server_state) for hop_rows in wave]
            out = [worker.rows[hop_rows.model[1]] for hop_rows in wave]
            instructions = [hop_rows.instructions for hop_rows in wave]
            made = worker.hop_runner.run(instructions, contexts, out, self.typical)
            for each, report in zip(instructions, made, strict=True):
                reports.setdefault(each.hop.route, []).append(report)
        return reports


def hop_context(worker: WorkerContext, hop_rows: HopTensorRows, server_state: Mapping[str, Tensor]) -> HopContext:
    """The tensors of a hop."""
    rows, job = worker.rows, worker.job
    received = rows[hop_rows.model[0]]
    if hop_rows.received_model is not None:
        rows[hop_rows.received_model].copy_(received)
    if not job.terms:
        return HopContext(received)
    states, payloads = job.tensor_sizes(ClientState), job.tensor_sizes(Payload)
    for before, after in hop_rows.payload:
        rows[after].copy_(rows[before])
    return HopContext(
        received,
        rows[0] if job.needs_round_model else None,
        server_state,
        _views(rows, states, [before for before, _ in hop_rows.client_state]),
        _views(rows, states, [after for _, after in hop_rows.client_state]),
        _views(rows, payloads, [after for _, after in hop_rows.payload]),
    )


def _views(rows: TensorRows, sizes: Mapping[str, int], numbers: Sequence[int]) -> dict[str, Tensor]:
    """Named tensors that are the beginning of these rows; a tensor of one number does not fill its row."""
    return {name: rows[row][:size] for (name, size), row in zip(sizes.items(), numbers, strict=True)}


class ReadOnlyWorkItem:
    """A work item that only reads models, by default the one in row 0, and cannot be split."""

    writes: ClassVar[Sequence[int]] = ()

    @property
    def reads(self) -> Sequence[int]:
        return (0,)

    def split(self, max_waves: int) -> Sequence[Self]:
        return (self,)


@dataclass(frozen=True)
class ProfileClients(ReadOnlyWorkItem):
    """Compute the profiles of some clients, after training the model on each if the profiler asks for it."""

    profiler: ClientProfiler
    batch: RouteBatch

    def run(self, worker: WorkerContext) -> list[tuple[int, ProfileVector]]:
        """(position of the client in the list of all clients to profile, vector) for each client."""
        start = worker.rows[0]
        # The same key for every batch: a client's randomness does not depend on the other clients.
        hops = [Hop(self.batch.round, 0, 0, clients[0]) for _, clients in self.batch.routes]
        with describe_errors(f"profiling client {', '.join(str(hop.client) for hop in hops)}"):
            models = self._train(worker, hops, start) if self.profiler.trains else [start] * len(hops)
            return [
                (number, self.profiler.compute(hop.client, model, worker.hop_runner.flat_module, worker.job))
                for (number, _), hop, model in zip(self.batch.routes, hops, models, strict=True)
            ]

    @staticmethod
    def _train(worker: WorkerContext, hops: list[Hop], start: Tensor) -> list[Tensor]:
        models = list(start.new_empty(len(hops), len(start)))
        reports = worker.hop_runner.trainer.train_hops(hops, [HopContext(start)] * len(hops), models)
        for hop, report in zip(hops, reports, strict=True):
            if reason := check_weights(worker.job.guard, report.max_abs_weight):
                raise DivergedError(
                    f"profiling: the model left client {hop.client} with {reason}; lower train.lr or set train.clip"
                )
        return models


@dataclass(frozen=True)
class EvaluateChunk(ReadOnlyWorkItem):
    """Evaluate the model in a row on one chunk of the test or validation samples."""

    chunk: Chunk
    on: EvaluationSet
    row: int = 0

    @property
    def reads(self) -> Sequence[int]:
        return (self.row,)

    def run(self, worker: WorkerContext) -> EvaluationSums:
        with describe_errors("evaluating the model"):
            job, model = worker.job, worker.rows[self.row]
            samples = evaluation_samples(job.federation, self.on)
            return evaluate_chunk(worker.hop_runner.flat_module, model, job.task, samples, self.chunk)


@dataclass(frozen=True)
class EvaluateClients(ReadOnlyWorkItem):
    """Evaluate models on the held-out samples of some clients."""

    clients: tuple[int, ...]
    model_rows: tuple[int, ...]
    """The row of the model of each client."""

    wanted: ClientEvaluationSettings

    @property
    def reads(self) -> Sequence[int]:
        return tuple(dict.fromkeys(self.model_rows))

    def run(self, worker: WorkerContext) -> list[ClientEvaluation]:
        with describe_errors(f"evaluating client {', '.join(map(str, self.clients))}"):
            models = [worker.rows[row] for row in self.model_rows]
            return worker.held_out_evaluator.evaluate(self.clients, models, self.wanted)
