"""Executors: they run work items on this machine, in memory that all worker processes share.

Workers are forked, so they inherit data sets and modules, and models are in memory that all processes see: a work item
is sent as a few integers, no model or data set is ever pickled. A work item writes only where no other does and never
to its own input, so an item whose worker died can be run again. Each process computes with one thread; results do not
depend on the number of processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from fedrelay.data.evaluation_samples import convert_now
from fedrelay.errors import EngineError, FedRelayError
from fedrelay.local.client_evaluation import HeldOutEvaluator
from fedrelay.local.hop_runner import HopRunner
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import TORCH_GLOBALS

MAX_DEATHS = 3
"""The run ends when a worker died this often on the same work item."""

log = logging.getLogger(__name__)

RAY_CLUSTERS: set[str] = set()
"""Addresses of the Ray clusters that this process was ever connected to."""

Result = TypeVar("Result", covariant=True)
T = TypeVar("T")


class TensorRows(Protocol):
    """Memory for tensors of the size of a model, one row each."""

    def __getitem__(self, row: int, /) -> Tensor: ...


class AssignableTensorRows(TensorRows, Protocol):
    """Rows that the engine may set between work items."""

    def __setitem__(self, row: int, value: Tensor | float, /) -> None: ...


class WorkerContext:
    """What one process needs to run work items: its own hop runner, and the shared rows.

    Row 0 is the model of the round; the engine decides about the others.
    """

    def __init__(self, job: TrainingJob, rows: TensorRows) -> None:
        self.job = job
        self.rows = rows
        self.hop_runner = HopRunner(job)

    @cached_property
    def held_out_evaluator(self) -> HeldOutEvaluator:
        """Evaluates models on the held-out samples of clients."""
        return HeldOutEvaluator(self.job, self.hop_runner.flat_module)


class WorkItem(Protocol[Result]):
    """A unit of work for one worker."""

    @property
    def reads(self) -> Sequence[int]:
        """The rows that it needs from others."""

    @property
    def writes(self) -> Sequence[int]:
        """The rows that it writes for others."""

    def split(self, max_waves: int) -> Sequence[Self]:
        """The same work as items of at most `max_waves` waves, to be run one after another by any workers."""

    def run(self, worker: WorkerContext) -> Result: ...


class WorkItemExecutor(Protocol):
    """Runs work items."""

    parallelism: int
    """How many items run at the same time."""

    def allocate(self, rows: int) -> AssignableTensorRows:
        """At least this many rows that every worker sees; valid until more rows are requested."""

    def run_all(self, items: Sequence[WorkItem[T]]) -> list[T]:
        """Run all items; results in the order of the items. A split item has several results, one after another."""

    def close(self) -> None:
        """Release processes and memory."""


class InlineExecutor:
    """Runs one item after another in this process."""

    parallelism = 1

    def __init__(self, job: TrainingJob) -> None:
        self.rows = torch.empty(0, job.layout.size, dtype=job.layout.dtype)
        self.worker = WorkerContext(job, self.rows)

    def allocate(self, rows: int) -> Tensor:
        if rows > len(self.rows):
            self.worker.rows = self.rows = self.rows.new_empty(rows, self.rows.shape[1])
        return self.rows

    def run_all(self, items: Sequence[WorkItem[T]]) -> list[T]:
        with one_thread():
            return [item.run(self.worker) for item in items]

    def close(self) -> None:
        pass


class ForkedExecutor:
    """Worker processes that take the next item as soon as they are free, in the order given."""

    def __init__(self, job: TrainingJob, workers: int) -> None:
        self.job = job
        self.parallelism = workers
        self.workers: list[Worker] = []
        self.rows = shared_rows(job, 1)
        # Converted once here, not in every worker after the fork.
        convert_now(job.federation)

    def allocate(self, rows: int) -> Tensor:
        """Shared memory. Workers inherit it when they are forked, so more rows need new workers."""
        if rows > len(self.rows):
            self.close()
            self.rows = shared_rows(self.job, max(rows, 2 * len(self.rows)))
        return self.rows

    def run_all(self, items: Sequence[WorkItem[T]]) -> list[T]:
        """Keep all workers busy until everything is done. There are never more workers than items."""
        while len(self.workers) < min(self.parallelism, len(items)):
            self.workers.append(self._start(len(self.workers)))
        waiting = [(number, 0) for number in reversed(range(len(items)))]
        idle = list(range(len(self.workers)))
        busy: dict[Connection, tuple[int, int, int]] = {}
        results: dict[int, T] = {}
        try:
            while waiting or busy:
                while waiting and idle:
                    (number, deaths), worker = waiting.pop(), idle.pop()
                    connection = self.workers[worker].connection
                    with contextlib.suppress(BrokenPipeError):  # a dead worker is noticed when its result is read
                        connection.send(items[number])
                    busy[connection] = (number, deaths, worker)
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    number, deaths, worker = busy.pop(ready)
                    idle.append(worker)
                    try:
                        result: Any = ready.recv()
                    except (EOFError, OSError):
                        self._replace(worker, deaths + 1)
                        waiting.append((number, deaths + 1))
                        continue
                    if isinstance(result, FedRelayError | KeyboardInterrupt):
                        raise result
                    results[number] = result
        except BaseException:
            self.close()  # results still on their way would be taken for those of the next call
            raise
        return [results[number] for number in range(len(items))]

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _replace(self, number: int, deaths: int) -> None:
        worker = self.workers[number]
        worker.stop()
        if deaths >= MAX_DEATHS:
            raise EngineError(
                f"a worker process died {deaths} times in a row on the same work item ({worker.exit_reason()}); "
                "is there enough memory?"
            )
        log.warning("a worker process died (%s); its work is done again by a new one", worker.exit_reason())
        self.workers[number] = self._start(number)

    def _start(self, number: int) -> Worker:
        return Worker(self.job, self.rows, self.workers, core_of_worker(number, self.parallelism))


class Worker:
    """One forked process and the pipe to it."""

    def __init__(self, job: TrainingJob, rows: Tensor, siblings: list[Worker], core: int | None) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        # If a child kept its siblings' pipes open, they would not notice that the parent is gone.
        foreign = [self.connection, *(sibling.connection for sibling in siblings)]
        self.process = context.Process(target=_serve, args=(theirs, foreign, job, rows, core), daemon=True)
        # Until the child has set its own handlers, a signal would run the parent's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with warnings.catch_warnings():
                # Forking with other threads is discouraged, but the child takes none of their locks.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def stop(self) -> None:
        """End the process, whatever it is doing: work items can be run again, nothing is lost."""
        self.connection.close()
        self.process.terminate()
        self.process.join()

    def exit_reason(self) -> str:
        code = self.process.exitcode
        return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def _serve(connection: Connection, foreign: list[Connection], job: TrainingJob, rows: Tensor, core: int | None) -> None:
    """The loop of a worker: work items in, results out, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    for other in foreign:
        if not other.closed:
            other.close()
    torch.set_num_threads(1)
    keep_freed_memory()
    end_with_parent()
    _yield_to_parent()
    worker: WorkerContext | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            item: WorkItem[Any] = connection.recv()
            if core is not None:
                move_to_core(core)
            try:
                worker = worker or WorkerContext(job, rows)
                connection.send(item.run(worker))
            except (FedRelayError, KeyboardInterrupt) as error:  # signals are ignored, so user code has raised it
                connection.send(error)
            except Exception as error:
                connection.send(EngineError(f"a worker failed: {type(error).__name__}: {error}"))
    os._exit(0)


def forking_is_safe() -> bool:
    """Whether this process forks others that compute.

    Windows has no fork, and on macOS its libraries break. With Python 3.13, processes that are forked after Ray was
    connected to a cluster of several nodes end with SIGSEGV (Ray 2.60).
    """
    after_ray = sys.version_info >= (3, 13) and bool(RAY_CLUSTERS)
    return sys.platform == "linux" and not after_ray


def shared_rows(job: TrainingJob, rows: int) -> Tensor:
    """Memory that all forked processes see. It takes no room until it is used, and is freed with the last process."""
    memory = mmap.mmap(-1, rows * job.layout.bytes)
    return torch.frombuffer(memory, dtype=job.layout.dtype).view(rows, job.layout.size)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, and restore the caller's number of threads and random generator afterwards.

    Both belong to the whole process, so a lock lets only one thread of it compute at a time.
    """
    with TORCH_GLOBALS:
        threads, random_state = torch.get_num_threads(), torch.get_rng_state()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_rng_state(random_state)


def end_with_parent() -> None:
    """End this process as soon as its parent is gone, even if the parent was killed.

    The parent holds the other end of a pipe, which the kernel then closes.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "the main process has no parent to wait for"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def keep_freed_memory() -> None:
    """Tell glibc not to return large freed buffers to the kernel: allocating them again costs a tenth of a step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**30)
        mallopt(mmap_threshold, 2**30)


def core_of_worker(number: int, workers: int) -> int | None:
    """The core on which a worker begins its items, if there is a worker for each core that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    usable = sorted(os.sched_getaffinity(0))
    return usable[number] if len(usable) == workers else None


def move_to_core(core: int) -> None:
    """Move to this core, and stay free to leave it when something else needs it.

    While the main process sends items, its core is busy, so the kernel often wakes two workers on the same other core.
    There they take turns for milliseconds, beside a core that is idle: a fifth of the rounds with small models took
    almost twice as long.
    """
    with contextlib.suppress(OSError):  # the core was taken away from this process
        usable = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, {core})
        finally:
            os.sched_setaffinity(0, usable)


def _yield_to_parent() -> None:
    """Do not preempt the parent at the moment it sends a work item: it has items for other workers too.

    This cuts the time of rounds with small models by a third.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
