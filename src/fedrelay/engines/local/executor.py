"""Crews: who carries out tasks on this machine, and the memory they share.

Workers are forked, so data sets and modules are simply there, and models lie in memory that all processes see: a task
is sent as a few integers, no model or data set is ever pickled. A task writes only where no other does and never to its
own input, so one whose worker died can be done again. Each process computes with one thread; results do not depend on
how many processes there are.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from fedrelay.errors import EngineError, FedRelayError
from fedrelay.local.hop import HopRunner
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import TORCH_GLOBALS

MOST_DEATHS = 3
"""A task whose worker died this often is given up."""

Outcome = TypeVar("Outcome", covariant=True)
T = TypeVar("T")


class Rows(Protocol):
    """Memory for models and what goes with them, one row each."""

    def __getitem__(self, row: int, /) -> Tensor:
        """One row."""


class Table(Rows, Protocol):
    """Rows as the engine sees them between tasks."""

    def __setitem__(self, row: int, value: Tensor | float, /) -> None:
        """Copy to a row."""


class WorkerContext:
    """What one process needs to carry out tasks: a workshop of its own, and the models it shares with others.

    Row 0 of `models` holds the model of the round; what is in the others the engine says.
    """

    def __init__(self, job: TrainingJob, models: Rows) -> None:
        self.job = job
        self.models = models
        self.hop_runner = HopRunner(job)


class WorkItem(Protocol[Outcome]):
    """Something to do at a workplace."""

    @property
    def reads(self) -> Sequence[int]:
        """The rows that it needs from others."""

    @property
    def writes(self) -> Sequence[int]:
        """The rows that it leaves for others."""

    def legs(self, longest: int) -> Sequence[Self]:
        """The same in pieces of at most so many waves, to be done one after another, by whomever."""

    def run(self, place: WorkerContext) -> Outcome:
        """Do it."""


class Executor(Protocol):
    """Carries out tasks."""

    count: int
    """How many are done at the same time."""

    def models(self, rows: int) -> Table:
        """Room for so many models that every workplace sees; kept until more rows are asked for."""

    def carry_out(self, tasks: Sequence[WorkItem[T]]) -> list[T]:
        """Do all tasks; outcomes in the order of the tasks, those of a task done in several legs one after another."""

    def close(self) -> None:
        """Let go of processes and memory."""


class InlineExecutor:
    """One task after another in this process."""

    count = 1

    def __init__(self, job: TrainingJob) -> None:
        self.table = torch.empty(0, job.layout.size, dtype=job.layout.dtype)
        self.place = WorkerContext(job, self.table)

    def models(self, rows: int) -> Tensor:
        """Ordinary memory."""
        if rows > len(self.table):
            self.place.models = self.table = self.table.new_empty(rows, self.table.shape[1])
        return self.table

    def carry_out(self, tasks: Sequence[WorkItem[T]]) -> list[T]:
        """Do all tasks in their order."""
        with one_thread():
            return [task.run(self.place) for task in tasks]

    def close(self) -> None:
        """Nothing to let go of."""


class ForkedExecutor:
    """Worker processes that take the next task as soon as they are free, in the order given."""

    def __init__(self, job: TrainingJob, workers: int) -> None:
        self.job = job
        self.count = workers
        self.workers: list[Worker] = []
        self.arena = shared_tensor(job, 1)
        # Converted here once, not in every worker after the fork.
        job.federation.test  # noqa: B018
        job.federation.samples(0)

    def models(self, rows: int) -> Tensor:
        """Shared memory. Workers inherit it when they are forked, so a larger one needs new workers."""
        if rows > len(self.arena):
            self.close()
            self.arena = shared_tensor(self.job, max(rows, 2 * len(self.arena)))
        return self.arena

    def carry_out(self, tasks: Sequence[WorkItem[T]]) -> list[T]:
        """Keep all workers busy until everything is done; there are never more of them than tasks."""
        while len(self.workers) < min(self.count, len(tasks)):
            self.workers.append(Worker(self.job, self.arena, self.workers))
        waiting = [(number, 0) for number in reversed(range(len(tasks)))]
        idle = list(range(len(self.workers)))
        busy: dict[Connection, tuple[int, int, int]] = {}
        outcomes: dict[int, T] = {}
        try:
            while waiting or busy:
                while waiting and idle:
                    (number, deaths), worker = waiting.pop(), idle.pop()
                    connection = self.workers[worker].connection
                    with contextlib.suppress(BrokenPipeError):  # a dead worker shows when its answer is read
                        connection.send(tasks[number])
                    busy[connection] = (number, deaths, worker)
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    number, deaths, worker = busy.pop(ready)
                    idle.append(worker)
                    try:
                        outcome: Any = ready.recv()
                    except (EOFError, OSError):
                        self._replace(worker, deaths + 1)
                        waiting.append((number, deaths + 1))
                        continue
                    if isinstance(outcome, FedRelayError):
                        raise outcome
                    outcomes[number] = outcome
        except BaseException:
            self.close()  # answers still under way would be taken for those of the next call
            raise
        return [outcomes[number] for number in range(len(tasks))]

    def close(self) -> None:
        """Send all workers home."""
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _replace(self, number: int, deaths: int) -> None:
        worker = self.workers[number]
        worker.stop()
        if deaths >= MOST_DEATHS:
            raise EngineError(
                f"a worker process died {deaths} times in a row on the same task ({worker.last_words()}); "
                "is there enough memory?"
            )
        self.workers[number] = Worker(self.job, self.arena, self.workers)


class Worker:
    """One forked process and the pipe to it."""

    def __init__(self, job: TrainingJob, models: Tensor, siblings: list[Worker]) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        # A child that kept its siblings' pipes open would keep them from noticing that the parent is gone.
        foreign = [self.connection, *(sibling.connection for sibling in siblings)]
        self.process = context.Process(target=_serve, args=(theirs, foreign, job, models), daemon=True)
        # Until the child has set its own, a signal would find the parent's handlers in it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with warnings.catch_warnings():
                # Forking beside other threads is discouraged; the child takes no lock of theirs and computes alone.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def stop(self) -> None:
        """End the process, whatever it is doing: tasks can be done again, nothing is lost."""
        self.connection.close()
        self.process.terminate()
        self.process.join()

    def last_words(self) -> str:
        """How the process ended."""
        code = self.process.exitcode
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _serve(connection: Connection, foreign: list[Connection], job: TrainingJob, models: Tensor) -> None:
    """The life of a worker: tasks in, outcomes out, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    for other in foreign:
        if not other.closed:
            other.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    end_with_parent()
    _let_the_parent_finish()
    place: WorkerContext | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            task: WorkItem[Any] = connection.recv()
            try:
                place = place or WorkerContext(job, models)
                connection.send(task.run(place))
            except FedRelayError as error:
                connection.send(error)
            except Exception as error:
                connection.send(EngineError(f"a worker failed: {type(error).__name__}: {error}"))
    os._exit(0)


def shared_tensor(job: TrainingJob, rows: int) -> Tensor:
    """Memory that all forked processes see. It costs nothing until it is touched and goes with the last process."""
    memory = mmap.mmap(-1, rows * job.layout.bytes)
    return torch.frombuffer(memory, dtype=job.layout.dtype).view(rows, job.layout.size)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread and leave the caller's settings and random stream as they were.

    Both belong to the whole process, so runs in several threads of it take turns.
    """
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def end_with_parent() -> None:
    """End this process as soon as its parent is gone, even if that was killed: nobody waits for its work any more.

    The parent holds the other end of a pipe, which the kernel closes with it.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "the main process has no parent to wait for"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def keep_freed_memory() -> None:
    """Tell glibc not to hand large freed buffers back to the kernel: fetching them again costs a tenth of a step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**30)
        mallopt(mmap_threshold, 2**30)


def _let_the_parent_finish() -> None:
    """Do not take the core from the parent at the moment it sends a task: it has tasks for others too.

    Rounds of small models take two thirds of the time so.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
