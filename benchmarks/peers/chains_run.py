"""FedRelay's FedSeq: ten models travel through ten clients each. Times hops, and the handover from client to client.

A handover is everything between the last step at one client and the first step at the next: noting the report, storing
and loading the model, drawing and gathering the next client's batches. It is measured apart from the timed rounds, in
one process and in CPU time, with an optimiser that reads the clock at every step. The time between two steps is longer
by the handover where they belong to different clients. The clock takes a microsecond.

Variants: `two` workers, or `one` (`engine.workers: 1`: everything in the main process).
"""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import Any, ClassVar
from unittest.mock import patch

from fedrelay_run import ClockSettings, federation_of, run_hops, settings_of
from torch import Tensor
from workload import POPULATION, SAMPLES, STEPS, WARM_UP, Case, report, task

import fedrelay as fr
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.optimizers.base import LearningRate, State
from fedrelay.local.optimizers.build import OPTIMIZERS
from fedrelay.local.optimizers.sgd import Sgd

CHAINS, LENGTH = 10, 10
HANDOVER_ROUNDS = 4


class TimedSgd(Sgd):
    """Notes the time of every step."""

    moments: ClassVar[list[float]] = []

    def update(self, theta: Tensor, gradient: Tensor, state: State, lr: LearningRate, train: TrainSettings) -> None:
        self.moments.append(time.thread_time())
        super().update(theta, gradient, state, lr, train)


def handover_share(federation: fr.Federation, case: Case, settings: dict[str, Any]) -> float:
    """The handover as a share of a hop; from medians, because some intervals contain an interrupt."""
    with patch.dict(OPTIMIZERS, sgd=TimedSgd):
        run_hops("fedseq", federation, case, settings, rounds=HANDOVER_ROUNDS)
    moments = TimedSgd.moments
    # One reading for all models that are trained side by side; those go through their chains from end to end.
    assert moments
    assert len(moments) % (STEPS * LENGTH) == 0
    intervals = list(enumerate((later - sooner for sooner, later in pairwise(moments)), start=1))
    within = median(taken for step, taken in intervals if step % STEPS)
    across = median(taken for step, taken in intervals if step % STEPS == 0 and step % (STEPS * LENGTH))
    return (across - within) / (across + (STEPS - 1) * within)


def main() -> None:
    wanted = task(("two", "one"))
    case, rounds = wanted.case, WARM_UP + wanted.rounds + 1
    federation = federation_of(case)
    settings = settings_of(case, rounds) | {
        "fraction": 1.0,
        "grouping": {"max_clients": LENGTH, "min_samples": LENGTH * SAMPLES},
        "engine": {"workers": 1 if wanted.variant == "one" else 2},
    }
    share = handover_share(federation, case, settings)
    clock = ClockSettings()
    result = fr.run("fedseq", data=federation, model=case.model(), callbacks=clock, **settings)
    assert result.client_updates == POPULATION * rounds
    assert result.transfers["c2c"] == CHAINS * (LENGTH - 1) * rounds
    report(case, clock.seconds(wanted.rounds), wanted.rounds * POPULATION, handover=share)


if __name__ == "__main__":
    main()
