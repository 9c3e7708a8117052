"""Whole runs in worker processes, side by side. An interrupted run saves its rounds and is continued the next time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from typing import Self, TypeVar

from fedrelay.engines.local.executor import end_with_parent
from fedrelay.errors import EngineError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class RunWorkers:
    """Worker processes that do one item of work after another; a context manager."""

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.stop = context.Event()
        self.pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(self.stop,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        try:
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
            for process in multiprocessing.active_children():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)
            self.pool.shutdown(wait=True, cancel_futures=True)
            raise


def side_by_side(
    work: Callable[[Item], Outcome], items: Sequence[Item], processes: int
) -> Iterator[tuple[Item, Outcome]]:
    """Do all items in as many processes, as `RunWorkers.each` does."""
    with RunWorkers(processes) as workers:
        yield from workers.each(work, items)


_stop: list[Event] = []
"""In a worker: set when no further item is to begin."""


def _start_worker(stop: Event) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between items there is nothing to save
    _stop.append(stop)


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
