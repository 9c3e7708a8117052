"""The engine for one machine: worker processes that share memory.

Workers are forked, so data sets and modules are simply there, and models lie in memory that all processes see: a hop
is sent as a few integers, nothing is ever pickled. Every hop reads one row and writes another, so a hop whose worker
died can be done again. Each process computes with one thread; results do not depend on how many there are.

With one worker, on other systems than Linux, or with a device other than the CPU, hops run in this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import mmap
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch import Tensor

from fedrelay.engines.base import Engine, Job, check_finite
from fedrelay.errors import EngineError, FedRelayError
from fedrelay.local.arrival import Arrival, HopReport, arrival
from fedrelay.local.judge import Verdict, chunks, judge
from fedrelay.local.trainer import Trainer
from fedrelay.routes.plan import Hop, RoundPlan

MOST_DEATHS = 3
"""A task whose worker died this often is given up."""

Place = tuple[int, int]
"""Where a model lies: (row, side). Row 0 holds the model of the round, row r + 1 that of route r."""

BROADCAST: Place = (0, 0)


def start_local(job: Job, workers: int) -> Engine:
    """The local engine with so many workers; 0 = one per core."""
    count = workers or os.cpu_count() or 1
    forks = sys.platform == "linux" and torch.device(job.train.device).type == "cpu"
    return PoolEngine(job, count) if forks and count > 1 else InlineEngine(job)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread and leave the caller's settings and random stream as they were."""
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


class InlineEngine:
    """Hops one after another in this process, in wavefront order."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.trainer = job.trainer()

    def travel(self, plan: RoundPlan, broadcast: Tensor) -> list[Arrival]:
        """Carry out all routes of a round."""
        models = [broadcast.clone() for _ in plan.routes]
        reports: list[list[HopReport]] = [[] for _ in plan.routes]
        with one_thread():
            for hop in plan.hops():
                model = models[hop.route]
                report = _train(self.trainer, hop, model, broadcast, model)
                check_finite(hop, report)
                reports[hop.route].append(report)
        return _arrivals(plan, lambda route: models[route], reports)

    def evaluate(self, weights: Tensor) -> Verdict:
        """Judge a model chunk by chunk."""
        test = self.job.federation.test
        with one_thread():
            verdicts = [judge(self.trainer.bench, weights, test, chunk) for chunk in range(chunks(test))]
        return sum(verdicts[1:], verdicts[0])

    def close(self) -> None:
        """Nothing to let go of."""


class Arena:
    """Rows of memory that all forked processes see; each row has two sides, so that a hop never overwrites its input.

    Anonymous memory costs nothing until it is touched and vanishes with the last process.
    """

    def __init__(self, job: Job, rows: int) -> None:
        self.rows = rows
        memory = mmap.mmap(-1, rows * 2 * job.layout.bytes)
        self.models = torch.frombuffer(memory, dtype=job.layout.dtype).view(rows, 2, job.layout.size)

    def at(self, place: Place) -> Tensor:
        """The model at a place."""
        model: Tensor = self.models[place]
        return model


@dataclass(frozen=True)
class HopTask:
    """Train the model at `source` on the hop's client and leave it at `target`."""

    hop: Hop
    source: Place
    target: Place

    def run(self, trainer: Trainer, arena: Arena) -> HopReport:
        """Carried out inside a worker."""
        return _train(trainer, self.hop, arena.at(self.source), arena.at(BROADCAST), arena.at(self.target))


@dataclass(frozen=True)
class JudgeTask:
    """Judge the model of the round on one chunk of test samples."""

    chunk: int

    def run(self, trainer: Trainer, arena: Arena) -> Verdict:
        """Carried out inside a worker."""
        return judge(trainer.bench, arena.at(BROADCAST), trainer.federation.test, self.chunk)


Task = HopTask | JudgeTask


class PoolEngine:
    """Hops in worker processes; the route with the most hops left goes first."""

    def __init__(self, job: Job, workers: int) -> None:
        self.job = job
        self.count = workers
        self.workers: list[Worker] = []
        self.arena = Arena(job, 1)
        self.test_chunks = chunks(job.federation.test)  # converted once, before workers inherit it

    def travel(self, plan: RoundPlan, broadcast: Tensor) -> list[Arrival]:
        """Carry out all routes of a round."""
        self._make_room(len(plan.routes) + 1)
        self.arena.at(BROADCAST).copy_(broadcast)
        reports: list[list[HopReport]] = [[] for _ in plan.routes]
        queue = [(-len(route.clients), number) for number, route in enumerate(plan.routes)]
        heapq.heapify(queue)

        def next_task() -> Task | None:
            if not queue:
                return None
            left, route = heapq.heappop(queue)
            clients = plan.routes[route].clients
            index = len(clients) + left
            source = (route + 1, index % 2) if index else BROADCAST
            return HopTask(Hop(plan.round, route, index, clients[index]), source, (route + 1, (index + 1) % 2))

        def done(task: Task, report: Any) -> None:
            assert isinstance(task, HopTask)
            hop = task.hop
            check_finite(hop, report)
            reports[hop.route].append(report)
            left = len(plan.routes[hop.route].clients) - hop.index - 1
            if left:
                heapq.heappush(queue, (-left, hop.route))

        self._work(next_task, done)
        return _arrivals(plan, lambda route: self.arena.at((route + 1, len(plan.routes[route].clients) % 2)), reports)

    def evaluate(self, weights: Tensor) -> Verdict:
        """Judge a model, chunks side by side, summed in their order."""
        self._make_room(1)
        self.arena.at(BROADCAST).copy_(weights)
        tasks = iter([JudgeTask(chunk) for chunk in range(self.test_chunks)])
        verdicts: dict[int, Verdict] = {}

        def done(task: Task, verdict: Any) -> None:
            assert isinstance(task, JudgeTask)
            verdicts[task.chunk] = verdict

        self._work(lambda: next(tasks, None), done)
        return sum((verdicts[chunk] for chunk in range(1, self.test_chunks)), verdicts[0])

    def close(self) -> None:
        """Send all workers home."""
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _make_room(self, rows: int) -> None:
        """Workers inherit the arena when they are forked, so a larger one needs new workers."""
        if rows > self.arena.rows:
            self.close()
            self.arena = Arena(self.job, max(rows, 2 * self.arena.rows))
        while len(self.workers) < self.count:
            self.workers.append(Worker(self.job, self.arena, self.workers))

    def _work(self, next_task: Callable[[], Task | None], done: Callable[[Task, Any], None]) -> None:
        """Keep all workers busy until there is nothing left to do."""
        busy: dict[Connection, tuple[int, Task, int]] = {}
        retries: list[tuple[Task, int]] = []
        idle = list(range(len(self.workers)))
        try:
            while True:
                while idle:
                    task, deaths = retries.pop() if retries else (next_task(), 0)
                    if task is None:
                        break
                    number = idle.pop()
                    connection = self.workers[number].connection
                    with contextlib.suppress(BrokenPipeError):  # a dead worker shows when its answer is read
                        connection.send(task)
                    busy[connection] = (number, task, deaths)
                if not busy:
                    return
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    number, task, deaths = busy.pop(ready)
                    try:
                        outcome = ready.recv()
                    except (EOFError, ConnectionResetError):
                        retries.append((task, self._replace(number, task, deaths + 1)))
                    else:
                        if isinstance(outcome, FedRelayError):
                            raise outcome
                        done(task, outcome)
                    idle.append(number)
        except BaseException:
            # Answers still under way would be taken for those of the next call.
            self.close()
            raise

    def _replace(self, number: int, task: Task, deaths: int) -> int:
        worker = self.workers[number]
        worker.stop()
        if deaths >= MOST_DEATHS:
            raise EngineError(f"a worker process died {deaths} times in a row ({worker.last_words()}) on {task}")
        self.workers[number] = Worker(self.job, self.arena, self.workers)
        return deaths


class Worker:
    """One forked process and the pipe to it."""

    def __init__(self, job: Job, arena: Arena, siblings: list[Worker]) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        # A child that kept its siblings' pipes open would keep them from noticing that the parent is gone.
        foreign = [self.connection, *(sibling.connection for sibling in siblings)]
        self.process = context.Process(target=_serve, args=(theirs, foreign, job, arena), daemon=True)
        with warnings.catch_warnings():
            # The child computes with one thread of its own and takes no lock of the parent's.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()

    def stop(self) -> None:
        """End the process, whatever it is doing: hops are pure, nothing is lost."""
        self.connection.close()
        self.process.terminate()
        self.process.join()

    def last_words(self) -> str:
        """How the process ended."""
        code = self.process.exitcode
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _serve(connection: Connection, foreign: list[Connection], job: Job, arena: Arena) -> None:
    """The life of a worker: tasks in, reports out, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in foreign:
        other.close()
    torch.set_num_threads(1)
    _keep_freed_memory()
    trainer = job.trainer()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task: Task = connection.recv()
            try:
                connection.send(task.run(trainer, arena))
            except FedRelayError as error:
                connection.send(error)
    os._exit(0)


def _train(trainer: Trainer, hop: Hop, recv: Tensor, broadcast: Tensor, out: Tensor) -> HopReport:
    """A hop whose unexpected failures name the client."""
    try:
        return trainer.hop(hop, recv, broadcast, out)
    except FedRelayError:
        raise
    except Exception as error:
        raise EngineError(
            f"round {hop.round}: training on client {hop.client} failed: {type(error).__name__}: {error}"
        ) from error


def _arrivals(plan: RoundPlan, model: Callable[[int], Tensor], reports: list[list[HopReport]]) -> list[Arrival]:
    return [
        arrival(number, route.clients, model(number), hops)
        for number, (route, hops) in enumerate(zip(plan.routes, reports, strict=True))
    ]


def _keep_freed_memory() -> None:
    """Tell glibc not to hand large freed buffers back to the kernel: fetching them again costs a third of a step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**30)
        mallopt(mmap_threshold, 2**30)
