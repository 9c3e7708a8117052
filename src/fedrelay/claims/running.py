"""Pieces of studies, run in processes side by side. What was interrupted goes on the next time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Protocol

from fedrelay.claims.cases import Case
from fedrelay.claims.studies import Piece, Study
from fedrelay.engines.local.executor import one_thread
from fedrelay.errors import EngineError, FedRelayError


@dataclass(frozen=True)
class Job:
    """One piece of one study."""

    study: Study
    piece: Piece

    @property
    def title(self) -> str:
        """What it is called while it runs."""
        words = [self.study.title]
        words += [self.study.label(self.piece.subject)] if self.piece.subject else []
        return f"{' '.join(words)}, seed {self.piece.seed}"

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.study.done(self.piece)


@dataclass(frozen=True)
class Ended:
    """How a job ended."""

    seconds: float
    problem: str | None = None


class Watcher(Protocol):
    """Somebody who wants to see jobs go by."""

    def ended(self, job: Job, how: Ended) -> None:
        """A job is over."""


def jobs_of(cases: Sequence[Case]) -> list[Job]:
    """Everything there is to do for claims that can be run, each piece once, however many claims share it."""
    found: dict[tuple[object, ...], Job] = {}
    for case in cases:
        for study in case.studies.values() if case.obstacle is None else ():
            for piece in study.pieces:
                found.setdefault((study.folder, piece), Job(study, piece))
    return list(found.values())


def run_jobs(jobs: Sequence[Job], processes: int, watcher: Watcher) -> dict[str, str]:
    """Do what is not done; a job that fails is reported and the others go on. What went wrong is given by study."""
    problems: dict[str, str] = {}
    for study in {job.study.folder: job.study for job in jobs}.values():
        study.open()
    left = [job for job in jobs if not job.done]
    alone = processes == 1 or len(left) < 2
    ended = ((job, carry_out(job)) for job in left) if alone else _side_by_side(left, min(processes, len(left)))
    for job, how in ended:
        watcher.ended(job, how)
        if how.problem is not None:
            problems.setdefault(job.study.title, how.problem.splitlines()[0])
    return problems


def carry_out(job: Job) -> Ended:
    """Do one job."""
    began = time.monotonic()
    try:
        with one_thread():
            job.study.run(job.piece)
    except FedRelayError as error:
        return Ended(time.monotonic() - began, str(error))
    return Ended(time.monotonic() - began)


def _side_by_side(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, Ended]]:
    """All jobs as they end. An interruption lets those under way save what they have."""
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    with ProcessPoolExecutor(processes, context, initializer=_wait_calmly, initargs=(over,)) as pool:
        waiting: dict[Future[Ended | None], Job] = {pool.submit(_interruptible, job): job for job in jobs}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    how = future.result()
                    if how is None:
                        raise KeyboardInterrupt
                    yield waiting.pop(future), how
        except BrokenProcessPool:
            raise EngineError("a process ended unexpectedly; the same command goes on with what was saved") from None
        except BaseException:  # whatever it is: nobody waits for hours of work before it is told
            over.set()  # first, so that nobody begins what is waiting
            for process in multiprocessing.active_children():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


_ended: list[Event] = []
"""In a process of its own: what says that no further job is begun."""


def _wait_calmly(over: Event) -> None:
    """A process that waits for a job has nothing to save when it is interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _ended.append(over)


def _interruptible(job: Job) -> Ended | None:
    """A job in a process of its own; None if it was interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if any(over.is_set() for over in _ended):  # asked after listening: whatever came before is not missed
            return None
        return carry_out(job)
    except KeyboardInterrupt:
        return None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
