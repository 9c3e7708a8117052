"""FedRelay: FedAvg through `fedrelay.run` on all cores, timed from the end of one round to the end of another."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Any

from workload import BATCH, LEARNING_RATE, POPULATION, SAMPLES, STEPS, WARM_UP, Case, report, task

import fedrelay as fr
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.routes.execution_overlay import AS_PLANNED


class ClockSettings(fr.Callback):
    """Notes the end of every round."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_round_end(self, context: fr.RoundContext) -> None:
        self.ends.append(time.perf_counter())

    def seconds(self, rounds: int) -> float:
        """How long the rounds after the warm-up took."""
        return self.ends[WARM_UP + rounds - 1] - self.ends[WARM_UP - 1]


def federation_of(case: Case) -> fr.Federation:
    """The data of a case, each client with its own samples."""
    x, y = case.data()
    samples, labels = x.flatten(0, 1), y.flatten()
    owner = [client for client in range(POPULATION) for _ in range(SAMPLES)]
    return fr.federate(samples, labels, samples, labels, client_ids=owner, clients=POPULATION, partition="natural")


def settings_of(case: Case, rounds: int) -> dict[str, Any]:
    """The settings of a run. Only the last round is evaluated, and it is not timed."""
    return {
        "rounds": rounds,
        "fraction": case.fraction,
        "eval": {"every": rounds},
        "train": {"batch_size": BATCH, "epochs": 1, "lr": LEARNING_RATE},
    }


def run_hops(
    method: str,
    federation: fr.Federation,
    case: Case,
    settings: dict[str, Any],
    *,
    rounds: int = 1,
) -> None:
    """Run the hops of some rounds in this process, each from the first weights; check that no step is left out."""
    made = prepare(experiment(method, **settings), federation=federation, module=case.model())
    with closing(start_local(made.prepared.job(), workers=1)) as engine:
        for round in range(1, rounds + 1):
            for arrival in engine.run_round(
                made.planner.plan(round), AS_PLANNED, RoundInputs(made.prepared.layout.flatten(made.prepared.module))
            ):
                assert arrival.steps == STEPS * len(arrival.clients)


def main() -> None:
    wanted = task()
    case = wanted.case
    federation = federation_of(case)
    settings = settings_of(case, WARM_UP + wanted.rounds + 1)
    if case.clients > 10:
        settings["engine"] = {"lanes": -(-case.clients // (os.cpu_count() or 1))}  # one batched model for each core
    run_hops("fedavg", federation, case, settings)
    clock = ClockSettings()
    result = fr.run("fedavg", data=federation, model=case.model(), callbacks=clock, **settings)
    assert result.client_updates == case.clients * settings["rounds"]
    warm = fr.run("fedavg", data=federation, model=case.model(), **settings | {"rounds": WARM_UP})
    loss = case.loss(warm.load_into(case.model()))
    report(case, clock.seconds(wanted.rounds), wanted.rounds * case.clients, loss=loss)


if __name__ == "__main__":
    main()
