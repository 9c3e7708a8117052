"""FedRelay's FedSeq: ten models travel through ten clients each. Times hops, and what lies between them.

A hand-over is everything between the last step at one client and the first step at the next in the same process:
noting the report, storing and loading the model, drawing and gathering the next client's batches. Both ends are
stamped where they happen, in the worker, so no large times are subtracted from each other; and they are stamped in CPU
time, so other processes do not matter.

Variants: `two` workers, `one` worker process, `none` (`engine.workers: 1`: all in the main process).
"""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from fedrelay_run import Clock, check_steps, federation_of, settings_of
from torch import Tensor
from workload import POPULATION, SAMPLES, WARM_UP, report, task

import fedrelay as fr
from fedrelay import runner
from fedrelay.engines.crew import ForkedCrew
from fedrelay.engines.local import LocalEngine, start_local
from fedrelay.local import lanes
from fedrelay.local.trainer import EagerTrainer, Job
from fedrelay.routes.plan import Hop

CHAINS, LENGTH = 10, 10


class Stamps:
    """(process, first step begins, last step ends) of every hop, in memory that all workers write to."""

    def __init__(self, rounds: int) -> None:
        shape = (rounds + 1, CHAINS, LENGTH, 3)
        self.values = memoryview(mmap.mmap(-1, 8 * math.prod(shape))).cast("B").cast("d", shape)

    def write(self, hop: Hop, begin: float, end: float) -> None:
        """One hop is done."""
        for place, value in enumerate((os.getpid(), begin, end)):
            self.values[hop.round, hop.route, hop.index, place] = value

    def handover_share(self, rounds: range) -> float:
        """The time between hops as a share of that from hop to hop, each within a round and a process."""
        stamps: Any = self.values.tolist()
        between = whole = 0.0
        for round in rounds:
            stamped = [stamp for chain in stamps[round] for stamp in chain]
            for process in {process for process, _, _ in stamped}:
                mine = sorted((begin, end) for owner, begin, end in stamped if owner == process)
                between += sum(following - end for (_, end), (following, _) in pairwise(mine))
                whole += mine[-1][0] - mine[0][0]
        return between / whole


def stamping(stamps: Stamps) -> type[EagerTrainer]:
    """The trainer that notes when its steps begin and end; otherwise FedRelay's own."""

    class StampingTrainer(EagerTrainer):
        """Stamps hops."""

        def _batches(self, hop: Hop, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
            batches = super()._batches(hop, x, y)
            first = next(batches)
            begin = time.thread_time()
            yield first
            yield from batches
            stamps.write(hop, begin, time.thread_time())

    return StampingTrainer


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
    with patch.object(lanes, "EagerTrainer", stamping(stamps)), patch.object(runner, "start_local", start):
        result = fr.run("fedseq", data=federation, model=case.model(), observer=clock, **settings)
    assert result.client_updates == POPULATION * rounds
    assert result.transfers["c2c"] == CHAINS * (LENGTH - 1) * rounds
    timed = range(WARM_UP + 1, WARM_UP + wanted.rounds + 1)
    share = stamps.handover_share(timed)
    report(case, clock.seconds(wanted.rounds), wanted.rounds * POPULATION, handover=share)


if __name__ == "__main__":
    main()
