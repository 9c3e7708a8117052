"""FedRelay's FedSeq: ten models travel through ten clients each. Times hops, and what lies between them.

A hand-over is everything between the last step at one client and the first step at the next in the same process:
noting the report, storing and loading the model, drawing and gathering the next client's batches. Where several models
travel side by side it is that of all of them together. Both ends are stamped where they happen, in the worker, so no
large times are subtracted from each other; and they are stamped in CPU time, so other processes do not matter.

Variants: `two` workers, `one` worker process, `none` (`engine.workers: 1`: all in the main process).
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from fedrelay_run import Clock, check_steps, federation_of, settings_of
from workload import POPULATION, SAMPLES, WARM_UP, report, task

import fedrelay as fr
from fedrelay import runner
from fedrelay.engines.crew import ForkedCrew
from fedrelay.engines.local import LocalEngine, start_local
from fedrelay.local.lanes import StackedTrainer
from fedrelay.local.sgd import Sgd
from fedrelay.local.trainer import EagerTrainer, Job
from fedrelay.models.stacks import BoundStack
from fedrelay.routes.plan import Hop

CHAINS, LENGTH = 10, 10


class Stamps:
    """(process, first step begins, last step ends) of every hop, in memory that all workers write to.

    Of hops side by side, those of the first.
    """

    def __init__(self, rounds: int) -> None:
        shape = (rounds + 1, CHAINS, LENGTH, 3)
        self.values = memoryview(mmap.mmap(-1, 8 * math.prod(shape))).cast("B").cast("d", shape)
        self.begin: float | None = None
        self.end = 0.0

    def step_begins(self) -> None:
        """Keep the first of a hop."""
        if self.begin is None:
            self.begin = time.thread_time()

    def step_ends(self) -> None:
        """Keep the last of a hop."""
        self.end = time.thread_time()

    def write(self, hop: Hop) -> None:
        """One hop is done."""
        assert self.begin is not None
        for place, value in enumerate((os.getpid(), self.begin, self.end)):
            self.values[hop.round, hop.route, hop.index, place] = value
        self.begin = None

    def handover_share(self, rounds: range) -> float:
        """The time between hops as a share of that from hop to hop, each within a round and a process."""
        stamps: Any = self.values.tolist()
        between = whole = 0.0
        for round in rounds:
            stamped = [stamp for chain in stamps[round] for stamp in chain if stamp[0]]
            for process in {process for process, _, _ in stamped}:
                mine = sorted((begin, end) for owner, begin, end in stamped if owner == process)
                between += sum(following - end for (_, end), (following, _) in pairwise(mine))
                whole += mine[-1][0] - mine[0][0]
        return between / whole


@contextmanager
def stamping(stamps: Stamps) -> Iterator[None]:
    """Both trainers note when their steps begin and end; otherwise they are FedRelay's own."""

    def noted(before: Callable[[], None] | None, method: Any, after: Callable[[], None] | None) -> Any:
        def call(*args: Any) -> Any:
            if before is not None:
                before()
            found = method(*args)
            if after is not None:
                after()
            return found

        return call

    def train(method: Any) -> Any:
        def call(self: Any, hops: Sequence[Hop], *args: Any) -> Any:
            found = method(self, hops, *args)
            stamps.write(hops[0])
            return found

        return call

    with ExitStack() as patches:
        patches.enter_context(patch.object(Sgd, "step", noted(None, Sgd.step, stamps.step_ends)))
        for owner, name in ((BoundStack, "load"), (EagerTrainer, "_loss")):
            patches.enter_context(patch.object(owner, name, noted(stamps.step_begins, getattr(owner, name), None)))
        for trainer in (EagerTrainer, StackedTrainer):
            patches.enter_context(patch.object(trainer, "train", train(trainer.train)))
        yield


def one_forked_worker(job: Job, workers: int, *rest: Any) -> LocalEngine:
    """A crew of one, which FedRelay itself would replace by its main process."""
    return LocalEngine(job, ForkedCrew(job, 1))


def main() -> None:
    """Train the warm-up rounds, those that are timed, and a last one."""
    wanted = task(("two", "one", "none"))
    case, rounds = wanted.case, WARM_UP + wanted.rounds + 1
    federation = federation_of(case)
    settings = settings_of(case, rounds) | {
        "fraction": 1.0,
        "grouping": {"max_clients": LENGTH, "min_samples": LENGTH * SAMPLES},
        "engine": {"workers": 1 if wanted.variant == "none" else 2},
    }
    check_steps("fedseq", federation, case, **settings)
    stamps = Stamps(rounds)
    clock = Clock()
    start = one_forked_worker if wanted.variant == "one" else start_local
    with stamping(stamps), patch.object(runner, "start_local", start):
        result = fr.run("fedseq", data=federation, model=case.model(), observer=clock, **settings)
    assert result.client_updates == POPULATION * rounds
    assert result.transfers["c2c"] == CHAINS * (LENGTH - 1) * rounds
    timed = range(WARM_UP + 1, WARM_UP + wanted.rounds + 1)
    share = stamps.handover_share(timed)
    report(case, clock.seconds(wanted.rounds), wanted.rounds * POPULATION, handover=share)


if __name__ == "__main__":
    main()
