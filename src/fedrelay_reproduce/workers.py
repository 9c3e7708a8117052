"""Runs in worker processes, side by side. An interrupted run is continued the next time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import fedrelay as fr
from fedrelay.engines.local.executor import end_with_parent, one_thread
from fedrelay_reproduce.experiments import ClaimRun
from fedrelay_reproduce.scaled_claim import ScaledClaim


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    seconds: float
    problem: str | None = None


def runs_of(claims: Sequence[ScaledClaim]) -> list[ClaimRun]:
    """All runs of claims that can be run here; runs that claims share appear once."""
    found: dict[tuple[object, ...], ClaimRun] = {}
    for claim in claims:
        for experiment in claim.experiments.values() if claim.obstacle is None else ():
            for run in experiment.runs:
                found.setdefault(run.key, run)
    return list(found.values())


def execute_all(runs: Sequence[ClaimRun], processes: int, report: Callable[[ClaimRun, Ended], None]) -> dict[str, str]:
    """Do everything that is not done yet. If a run fails, the others go on.

    Returns:
        the first problem of every experiment that had one, by title.
    """
    problems: dict[str, str] = {}
    for experiment in {run.experiment.folder: run.experiment for run in runs}.values():
        experiment.open()
    left = [run for run in runs if not run.done]
    alone = processes == 1 or len(left) < 2
    ended = ((run, execute(run)) for run in left) if alone else _side_by_side(left, min(processes, len(left)))
    for run, how in ended:
        report(run, how)
        if how.problem is not None:
            problems.setdefault(run.experiment.title, how.problem.splitlines()[0])
    return problems


def execute(run: ClaimRun) -> Ended:
    """Do one run."""
    began = time.monotonic()
    try:
        with one_thread():
            run.experiment.execute(run)
    except fr.FedRelayError as error:
        return Ended(time.monotonic() - began, str(error))
    return Ended(time.monotonic() - began)


def _side_by_side(runs: Sequence[ClaimRun], processes: int) -> Iterator[tuple[ClaimRun, Ended]]:
    """All runs as they end. On an interruption, workers save what they have."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(stop,)) as pool:
        waiting: dict[Future[Ended | None], ClaimRun] = {pool.submit(_interruptible, run): run for run in runs}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    how = future.result()
                    if how is None:
                        raise KeyboardInterrupt
                    yield waiting.pop(future), how
        except BrokenProcessPool:
            raise fr.EngineError("a worker process died; the same command continues from what was saved") from None
        except BaseException:  # do not wait for hours of work before passing it on
            stop.set()  # before the signal, so that no worker begins another run
            for process in multiprocessing.active_children():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


_stop: list[Event] = []
"""In a worker: set when no further run is to begin."""


def _start_worker(stop: Event) -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between runs there is nothing to save
    _stop.append(stop)


def _interruptible(run: ClaimRun) -> Ended | None:
    """Do one run in a worker; None if it was interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if any(stop.is_set() for stop in _stop):  # checked after the handler is set, so no signal is missed
            return None
        return execute(run)
    except KeyboardInterrupt:
        return None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
