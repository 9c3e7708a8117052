"""The engine for one machine: it turns a plan into tasks for a crew of processes that share memory."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from fedrelay.engines.base import Engine, EngineEvent, RoundInputs
from fedrelay.engines.local.batching import RouteBatch, batch_routes
from fedrelay.engines.local.buffer_layout import BufferLayout, HopBuffers
from fedrelay.engines.local.executor import Executor, ForkedExecutor, InlineExecutor, Table, WorkerContext
from fedrelay.errors import DivergedError, FedRelayError
from fedrelay.local.arrival import Arrival, HopReport
from fedrelay.local.batched_trainer import lanes_for
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.evaluation import EvaluationSums, chunks, evaluate_chunk
from fedrelay.local.hop import failure
from fedrelay.local.hop_context import HopContext
from fedrelay.local.trainer import TrainingJob
from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop, fault_in
from fedrelay.routes.overlay import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan, Route

BEFORE = 0
"""The round of all that is done before the first one; its randomness has no other user."""

SITTINGS_AT_A_TIME = 4
"""So many for each worker, then their vectors are handed on: few enough to see progress, enough to keep all busy."""

Reports = dict[int, list[HopReport]]
"""What the clients of each route say, in the order of their turns."""


def start_local(job: TrainingJob, workers: int, client_states: ClientStateStore | None = None) -> Engine:
    """The local engine with so many workers; 0 = one per core.

    With one worker, on other systems than Linux, or with a device other than the CPU, all runs in this process.
    """
    count = workers or cores()
    forks = sys.platform == "linux" and torch.device(job.train.device).type == "cpu"
    return LocalEngine(job, ForkedExecutor(job, count) if forks and count > 1 else InlineExecutor(job), client_states)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Plans in, arrivals out; the crew does the work."""

    def __init__(self, job: TrainingJob, executor: Executor, client_states: ClientStateStore | None = None) -> None:
        self.job = job
        self.executor = executor
        self.client_states = client_states or ClientStateStore()
        self.kept: tuple[int, dict[int, dict[str, Tensor]]] = (0, {})
        """The round, and what its clients have at its end."""
        # Models that cannot be stacked gain nothing from a convoy but lose the workers it does not use.
        self.lanes = lanes_for(job)

    def run_round(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """Carry out all routes of a round."""
        buffers = BufferLayout(self.job, plan, overlay, tuple(inputs.starts))
        table = self.executor.models(buffers.rows)
        self._load(buffers, table, inputs)
        reports: Reports = {number: [] for number in range(len(plan.routes))}
        for step, trips in enumerate(self._trips(buffers, inputs.usual)):
            for outcome in self.executor.carry_out(trips):
                for number, found in outcome.items():
                    reports[number] += found
            if buffers.waves:
                self._pass_on(buffers, table, buffers.wavefront[step], reports)
        self.kept = self._kept(buffers, table)
        return [
            Arrival(
                number,
                route.clients,
                table[buffers.home("model", number)],
                tuple(reports[number]),
                {name: table[buffers.home(f"payload {name}", number)] for name in self.job.names("payload")},
                {
                    index: table[buffers.row("received_model", place)]
                    for place, (route_of_tap, index) in enumerate(overlay.taps)
                    if route_of_tap == number
                },
            )
            for number, route in enumerate(plan.routes)
            if route.clients
        ]

    def commit_client_state(self) -> None:
        """Put away what the clients of the round keep."""
        round, kept = self.kept
        for client, tensors in kept.items():
            self.client_states.put(round, client, tensors)

    def profile_clients(
        self, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        """Clients that train do so in convoys, the others alone; those with the most samples come first."""
        self.executor.models(1)[0] = weights
        plan = RoundPlan(BEFORE, tuple(Route((client,)) for client in clients))
        lanes = self.lanes if profiler.trains else 1
        sittings = [
            ProfileClients(profiler, route_batch) for route_batch in batch_routes(plan, self.job.federation.size, lanes)
        ]
        step = SITTINGS_AT_A_TIME * self.executor.count
        for begin in range(0, len(sittings), step):
            for pictures in self.executor.carry_out(sittings[begin : begin + step]):
                yield from pictures

    def evaluate(self, weights: Tensor) -> EvaluationSums:
        """Judge a model, chunks side by side, summed in their order."""
        self.executor.models(1)[0] = weights
        judgements = [EvaluateChunk(chunk) for chunk in range(chunks(self.job.federation.test))]
        verdicts = self.executor.carry_out(judgements)
        return sum(verdicts[1:], verdicts[0])

    def take_events(self) -> list[EngineEvent]:
        """None: nobody here is far away."""
        return []

    def close(self) -> None:
        """Send the crew home."""
        self.executor.close()

    def _trips(self, buffers: BufferLayout, usual: TypicalHop) -> Iterator[list[TrainRoutes]]:
        """What is done side by side: everything, or one wave after another."""
        server = tuple(buffers.row(f"server {name}") for name in self.job.names("server"))
        together = batch_routes(buffers.plan, self.job.federation.size, self.lanes, buffers.overlay.attempt)
        if not buffers.waves:
            stops = [
                tuple([buffers.stop(hop) for hop in wave] for wave in route_batch.waves()) for route_batch in together
            ]
            yield [TrainRoutes(waves, server, usual) for waves in stops]
            return
        for hops in map(dict, buffers.wavefront):
            waves = [[buffers.stop(hop) for hop in route_batch.hops_at(hops)] for route_batch in together]
            yield [TrainRoutes((wave,), server, usual) for wave in waves if wave]

    def _load(self, buffers: BufferLayout, table: Table, departure: RoundInputs) -> None:
        """Write down everything that the first turns read."""
        table[buffers.row("round")] = departure.weights
        for route, model in departure.starts.items():
            table[buffers.start(route)] = model
        for name in self.job.names("server"):
            table[buffers.row(f"server {name}")] = departure.server.get(name, 0.0)
        for name in self.job.names("payload"):
            usual = departure.server.get(name, 0.0)
            table[buffers.row(f"first {name}")] = usual
            for route in departure.starts:
                table[buffers.first(name, route)] = departure.payload.get(route, {}).get(name, usual)
        if self.job.names("state"):
            for client, number in buffers.clients.items():
                kept = self.client_states.get(client)
                for name in self.job.names("state"):
                    table[buffers.row(f"state {name}", number)] = kept.get(name, 0.0)

    def _pass_on(self, buffers: BufferLayout, table: Table, hops: Sequence[tuple[int, int]], reports: Reports) -> None:
        """After a step: clients keep what they wrote; of a client that was visited twice the changes may add up."""
        routes = buffers.plan.routes
        visitors = [(route, routes[route].clients[index]) for route, index in hops if not reports[route][index].refused]
        for name in self.job.names("state"):
            before = {
                client: table[buffers.row(f"state {name}", buffers.clients[client])].clone() for _, client in visitors
            }
            once = Counter(client for _, client in visitors)
            for route, client in visitors:
                row = buffers.row(f"state {name}", buffers.clients[client])
                kept = table[buffers.row(f"kept {name}", route)]
                twice = once[client] > 1 and name in self.job.adding_up
                table[row] = table[row] + (kept - before[client]) if twice else kept

    def _kept(self, buffers: BufferLayout, table: Table) -> tuple[int, dict[int, dict[str, Tensor]]]:
        """The round, and what its clients have at its end."""
        names, kind = self.job.names("state"), "state" if buffers.waves else "kept"
        return buffers.plan.round, {
            client: {name: table[buffers.row(f"{kind} {name}", number)].clone() for name in names}
            for client, number in (buffers.clients.items() if names else ())
        }


@dataclass(frozen=True)
class TrainRoutes:
    """Take a convoy along its routes, or one turn further: a few integers, all tensors lie in the common table."""

    waves: tuple[list[HopBuffers], ...]
    server: tuple[int, ...] = ()
    usual: TypicalHop = NO_HOPS_YET

    @property
    def reads(self) -> Sequence[int]:
        """The round's model, what the server tells, and what turns find that no earlier turn wrote."""
        rows, written = dict.fromkeys((0, *self.server)), set[int]()
        for wave in self.waves:
            for stop in wave:
                rows |= dict.fromkeys(row for row in stop.before if row not in written)
                written.update(stop.after)
        return tuple(rows)

    @property
    def writes(self) -> Sequence[int]:
        """What all turns leave behind."""
        return tuple(dict.fromkeys(row for wave in self.waves for stop in wave for row in stop.after))

    def legs(self, longest: int) -> Sequence[TrainRoutes]:
        """The same trip with stops between waves."""
        begins = range(0, len(self.waves), longest)
        return [replace(self, waves=self.waves[begin : begin + longest]) for begin in begins]

    def run(self, place: WorkerContext) -> Reports:
        """All hops, wave after wave."""
        reports: Reports = {}
        told = dict(zip(place.job.names("server"), (place.models[row] for row in self.server), strict=True))
        if len(self.waves) > 1:
            place.hop_runner.trainer.shuffle.foresee(stop.turn.hop for wave in self.waves for stop in wave)
        for wave in self.waves:
            visits = [hop_context(place, stop, told) for stop in wave]
            out = [place.models[stop.model[1]] for stop in wave]
            found = place.hop_runner.take([stop.turn for stop in wave], visits, out, self.usual)
            for stop, report in zip(wave, found, strict=True):
                reports.setdefault(stop.turn.hop.route, []).append(report)
        return reports


def hop_context(place: WorkerContext, stop: HopBuffers, told: Mapping[str, Tensor]) -> HopContext:
    """The tensors of a stop."""
    table = place.models
    recv, broadcast = table[stop.model[0]], table[0]
    if stop.received_model is not None:
        table[stop.received_model].copy_(recv)
    if not place.job.terms:
        return HopContext(recv, broadcast)
    names = place.job.names("state")
    for before, after in stop.payload:
        table[after].copy_(table[before])
    return HopContext(
        recv,
        broadcast,
        told,
        {name: table[before] for name, (before, _) in zip(names, stop.state, strict=True)},
        {name: table[after] for name, (_, after) in zip(names, stop.state, strict=True)},
        {name: table[after] for name, (_, after) in zip(place.job.names("payload"), stop.payload, strict=True)},
    )


class ReadOnlyWorkItem:
    """A task that looks at the model that lies ready, and is done in one go."""

    reads: ClassVar[Sequence[int]] = (0,)
    writes: ClassVar[Sequence[int]] = ()

    def legs(self, longest: int) -> Sequence[Self]:
        """One piece."""
        return (self,)


@dataclass(frozen=True)
class ProfileClients(ReadOnlyWorkItem):
    """Have the clients of a convoy train the model that lies ready, if the portrait asks for it, and portray them."""

    portrait: ClientProfiler
    route_batch: RouteBatch

    def run(self, place: WorkerContext) -> list[tuple[int, ProfileVector]]:
        """The place of each client in the list, and its vector."""
        start = place.models[0]
        # A client's randomness is its own, whoever else is portrayed.
        hops = [Hop(self.route_batch.round, 0, 0, clients[0]) for _, clients in self.route_batch.routes]
        names = ", ".join(str(hop.client) for hop in hops)
        with _named(f"profiling client {names}"):
            models = self._trained(place, hops, start) if self.portrait.trains else [start] * len(hops)
            return [
                (number, self.portrait.of(hop.client, model, place.hop_runner.bench, place.job))
                for (number, _), hop, model in zip(self.route_batch.routes, hops, models, strict=True)
            ]

    @staticmethod
    def _trained(place: WorkerContext, hops: list[Hop], start: Tensor) -> list[Tensor]:
        models = list(start.new_empty(len(hops), len(start)))
        trained = place.hop_runner.trainer.train(hops, [HopContext(start, start)] * len(hops), models)
        for hop, report in zip(hops, trained, strict=True):
            if reason := fault_in(place.job.guard, report.peak):
                raise DivergedError(
                    f"profiling: the model left client {hop.client} with {reason}; lower train.lr or set train.clip"
                )
        return models


@dataclass(frozen=True)
class EvaluateChunk(ReadOnlyWorkItem):
    """Judge the model of the round on one chunk of the test samples."""

    chunk: int

    def run(self, place: WorkerContext) -> EvaluationSums:
        """One chunk."""
        with _named("evaluating the model"):
            return evaluate_chunk(place.hop_runner.bench, place.models[0], place.job.federation.test, self.chunk)


@contextmanager
def _named(doing: str) -> Iterator[None]:
    """Failures nobody foresaw, such as those of a user's own module, say what was being done."""
    try:
        yield
    except FedRelayError:
        raise
    except Exception as error:
        raise failure(doing, error) from error
