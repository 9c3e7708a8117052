"""The engine for one machine: it turns a plan into tasks for a crew of processes that share memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrelay.engines.base import Engine, check_finite
from fedrelay.engines.convoys import Convoy, convoys
from fedrelay.engines.crew import Crew, ForkedCrew, InlineCrew, Workplace
from fedrelay.errors import DivergedError, EngineError, FedRelayError
from fedrelay.local.arrival import Arrival, HopReport, arrival
from fedrelay.local.judge import Verdict, chunks, judge
from fedrelay.local.lanes import stack_for
from fedrelay.local.portrait import Likeness, Portrait
from fedrelay.local.trainer import Job
from fedrelay.routes.plan import Hop, RoundPlan, Route

BEFORE = 0
"""The round of all that is done before the first one; its randomness has no other user."""

SITTINGS_AT_A_TIME = 4
"""So many for each worker, then their vectors are handed on: few enough to see progress, enough to keep all busy."""

Reports = dict[int, list[HopReport]]
"""What the clients of each route say, in the order of their turns."""


def start_local(job: Job, workers: int) -> Engine:
    """The local engine with so many workers; 0 = one per core.

    With one worker, on other systems than Linux, or with a device other than the CPU, all runs in this process.
    """
    count = workers or cores()
    forks = sys.platform == "linux" and torch.device(job.train.device).type == "cpu"
    return LocalEngine(job, ForkedCrew(job, count) if forks and count > 1 else InlineCrew(job))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Plans in, arrivals out; the crew does the work."""

    def __init__(self, job: Job, crew: Crew) -> None:
        self.job = job
        self.crew = crew
        # Models that cannot be stacked gain nothing from a convoy but lose the workers it does not use.
        self.lanes = job.lanes if stack_for(job) is not None else 1

    def travel(self, plan: RoundPlan, broadcast: Tensor) -> list[Arrival]:
        """Carry out all routes of a round."""
        models = self.crew.models(len(plan.routes) + 1)
        models[0].copy_(broadcast)
        trips = [Trip(convoy) for convoy in convoys(plan, self.job.federation.size, self.lanes)]
        reports: Reports = {}
        for outcome in self.crew.carry_out(trips):
            reports.update(outcome)
        return [
            arrival(number, route.clients, models[number + 1], reports[number])
            for number, route in enumerate(plan.routes)
        ]

    def portray(self, portrait: Portrait, clients: Sequence[int], weights: Tensor) -> Iterator[tuple[int, Likeness]]:
        """Clients that train do so in convoys, the others alone; those with the most samples come first."""
        self.crew.models(1)[0].copy_(weights)
        plan = RoundPlan(BEFORE, tuple(Route((client,)) for client in clients))
        lanes = self.lanes if portrait.trains else 1
        sittings = [Sitting(portrait, convoy) for convoy in convoys(plan, self.job.federation.size, lanes)]
        step = SITTINGS_AT_A_TIME * (self.crew.count if isinstance(self.crew, ForkedCrew) else 1)
        for begin in range(0, len(sittings), step):
            for pictures in self.crew.carry_out(sittings[begin : begin + step]):
                yield from pictures

    def evaluate(self, weights: Tensor) -> Verdict:
        """Judge a model, chunks side by side, summed in their order."""
        self.crew.models(1)[0].copy_(weights)
        judgements = [Judgement(chunk) for chunk in range(chunks(self.job.federation.test))]
        verdicts = self.crew.carry_out(judgements)
        return sum(verdicts[1:], verdicts[0])

    def close(self) -> None:
        """Send the crew home."""
        self.crew.close()


@dataclass(frozen=True)
class Trip:
    """Take a convoy along its routes: reads the model of the round, writes the rows of its own routes."""

    convoy: Convoy

    def run(self, place: Workplace) -> Reports:
        """All hops, wave after wave."""
        reports: Reports = {number: [] for number, _ in self.convoy.routes}
        for wave in self.convoy.waves():
            rows = [place.models[hop.route + 1] for hop in wave]
            received = rows if wave[0].index else [place.models[0]] * len(wave)
            clients = ", ".join(str(hop.client) for hop in wave)
            with _named(f"round {wave[0].round}: training on client {clients}"):
                found = place.trainer.train(wave, received, place.models[0], rows)
            for hop, report in zip(wave, found, strict=True):
                check_finite(hop, report)
                reports[hop.route].append(report)
        return reports


@dataclass(frozen=True)
class Sitting:
    """Have the clients of a convoy train the model that lies ready, if the portrait asks for it, and portray them."""

    portrait: Portrait
    convoy: Convoy

    def run(self, place: Workplace) -> list[tuple[int, Likeness]]:
        """The place of each client in the list, and its vector."""
        start = place.models[0]
        # A client's randomness is its own, whoever else is portrayed.
        hops = [Hop(self.convoy.round, 0, 0, clients[0]) for _, clients in self.convoy.routes]
        names = ", ".join(str(hop.client) for hop in hops)
        with _named(f"profiling client {names}"):
            models = self._trained(place, hops, start) if self.portrait.trains else [start] * len(hops)
            return [
                (number, self.portrait.of(hop.client, model, place.bench, place.job))
                for (number, _), hop, model in zip(self.convoy.routes, hops, models, strict=True)
            ]

    @staticmethod
    def _trained(place: Workplace, hops: list[Hop], start: Tensor) -> list[Tensor]:
        models = list(start.new_empty(len(hops), len(start)))
        for hop, report in zip(hops, place.trainer.train(hops, [start] * len(hops), start, models), strict=True):
            if not report.finite:
                raise DivergedError(
                    f"profiling: the model left client {hop.client} with non-finite weights; "
                    "lower train.lr or set train.clip"
                )
        return models


@dataclass(frozen=True)
class Judgement:
    """Judge the model of the round on one chunk of the test samples."""

    chunk: int

    def run(self, place: Workplace) -> Verdict:
        """One chunk."""
        with _named("evaluating the model"):
            return judge(place.bench, place.models[0], place.job.federation.test, self.chunk)


@contextmanager
def _named(doing: str) -> Iterator[None]:
    """Failures nobody foresaw, such as those of a user's own module, say what was being done."""
    try:
        yield
    except FedRelayError:
        raise
    except Exception as error:
        raise EngineError(f"{doing} failed: {type(error).__name__}: {error}") from error
