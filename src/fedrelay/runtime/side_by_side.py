"""Whole runs in worker processes, side by side. An interrupted run saves its rounds and is continued the next time.

Workers are forked, as those of the local engine are: a script needs no `if __name__ == "__main__"`, and workers know
what was registered before. Where processes cannot be forked, this process does one item after another.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Self, TypeVar

import torch

from fedrelay.engines.local.executor import end_with_parent, forking_is_safe
from fedrelay.errors import EngineError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class RunWorkers:
    """Worker processes that do one item of work after another; a context manager."""

    def __init__(self, processes: int) -> None:
        self.pool: ProcessPoolExecutor | None = None
        if not forking_is_safe():
            return
        context = multiprocessing.get_context("fork")
        self.stop = context.Event()
        self.pids: SimpleQueue[int] = context.SimpleQueue()
        self.pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(self.stop, self.pids))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.pool is not None:
            self.pool.shutdown()

    def each(self, work: Callable[[Item], Outcome], items: Sequence[Item]) -> Iterator[tuple[Item, Outcome]]:
        """Do all items, in any order, and yield each with its outcome as it ends.

        Args:
            work: A function of a module; it and the items are sent to the processes.
            items: What to do.

        Raises:
            KeyboardInterrupt: Ctrl-C; workers have finished and saved their round.
            EngineError: A worker process died.
        """
        if self.pool is None:
            yield from ((item, work(item)) for item in items)
            return
        try:
            with _forking():
                waiting: dict[Future[tuple[Outcome] | None], Item] = {
                    self.pool.submit(_interruptible, work, item): item for item in items
                }
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    outcome = future.result()
                    if outcome is None:
                        raise KeyboardInterrupt
                    yield waiting.pop(future), outcome[0]
        except BrokenProcessPool:
            raise EngineError("a worker process died; the same command continues from what was saved") from None
        except BaseException:  # do not wait for hours of work before passing it on
            self.stop.set()  # before the signal, so that no worker begins another item
            for pid in self._alive():
                os.kill(pid, signal.SIGINT)
            self.pool.shutdown(wait=True, cancel_futures=True)
            raise

    def _alive(self) -> set[int]:
        """The workers that have begun and not ended; other processes of the user are none of our business."""
        begun = set()
        while not self.pids.empty():
            begun.add(self.pids.get())
        return begun & {process.pid for process in multiprocessing.active_children()}


def side_by_side(
    work: Callable[[Item], Outcome], items: Sequence[Item], processes: int
) -> Iterator[tuple[Item, Outcome]]:
    """Do all items in as many processes, as `RunWorkers.each` does."""
    with RunWorkers(processes) as workers:
        yield from workers.each(work, items)


_stop: list[Event] = []
"""In a worker: set when no further item is to begin."""


@contextlib.contextmanager
def _forking() -> Iterator[None]:
    """While workers may be forked: until one has set its own handlers, a signal would run those of its parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            # Forking with other threads is discouraged, but a worker takes none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker(stop: Event, pids: SimpleQueue[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between items there is nothing to save
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for logger in (logging.getLogger(), logging.getLogger("fedrelay")):
        logger.handlers.clear()  # they may wait for a lock that a thread of the parent held
    torch.set_num_threads(1)
    end_with_parent()
    _stop.append(stop)
    pids.put(os.getpid())


def _interruptible(work: Callable[[Item], Outcome], item: Item) -> tuple[Outcome] | None:
    """Do one item in a worker; None if it was interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if any(stop.is_set() for stop in _stop):  # checked after the handler is set, so no signal is missed
            return None
        return (work(item),)
    except KeyboardInterrupt:
        return None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
