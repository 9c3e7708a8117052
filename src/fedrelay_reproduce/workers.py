"""Runs in worker processes, side by side. An interrupted run is continued the next time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import fedrelay as fr
from fedrelay.engines.local.executor import one_thread
from fedrelay.runtime.side_by_side import side_by_side
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
    ended = ((run, execute(run)) for run in left) if alone else side_by_side(execute, left, min(processes, len(left)))
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
