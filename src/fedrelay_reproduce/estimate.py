"""How long claims will take: the samples that their plans train on, times how fast this machine trains.

Plans are made for clients of equal size with hardly any data. How fast a model trains is measured on a few samples for
two rounds, with the same local terms and as many models side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import fedrelay as fr
from fedrelay.data.partition import DEFAULT_CLIENTS
from fedrelay.data.registry import load_dataset
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.quiet_logging import errors_only
from fedrelay.experiment.method import build_method
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import DataSettings
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.round_loop import run_experiment
from fedrelay_reproduce.experiments import ClaimRun, ComparisonRuns, GroupComparison, ImageRecovery
from fedrelay_reproduce.scaled_claim import ScaledClaim

PLANNED_ROUNDS = 5
"""How many rounds of a run are planned, evenly chosen."""

MEASURED_SAMPLES = 160
"""The most samples that a client has in a measurement."""

MOST_LANES = 8
"""The most models that are trained side by side in a measurement."""

EVALUATING = 0.25
"""Time to evaluate a sample, as a share of the time to train on it."""

GENERATING, GENERATED = 50, 5000
"""Time of a step of the attacker's generator, in steps of the model, and the images it generates after each hop."""

OVERHEAD = 1.0
"""Seconds for everything else: reading data, starting, forming groups."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of one core that a claim still needs; runs that claims share count for the first of them."""

    claim: ScaledClaim
    seconds: float
    runs: int


def estimate(claims: Sequence[ScaledClaim], runs: Sequence[ClaimRun]) -> list[Estimate]:
    """How long every claim will take."""
    left = {run.key: run for run in runs if not run.done}
    seconds: dict[tuple[object, ...], float] = {}
    found = []
    with errors_only("fedrelay"):  # warnings about the stand-ins would only confuse
        for claim in claims:
            keys = [run.key for experiment in claim.experiments.values() for run in experiment.runs]
            own = [left.pop(key) for key in keys if key in left]
            for run in own:
                kind = run.experiment.folder, run.method
                if kind not in seconds:
                    seconds[kind] = run_seconds(run)
            found.append(Estimate(claim, sum(seconds[run.experiment.folder, run.method] for run in own), len(own)))
    return found


def run_seconds(run: ClaimRun) -> float:
    """How long one run takes on one core."""
    runs = run.experiment
    if isinstance(runs, ComparisonRuns):
        _, experiment = runs.experiments[str(run.method), run.seed]
        samples, lanes = samples_of(experiment)
        return OVERHEAD + samples * pace_of(experiment, lanes)
    if isinstance(runs, ImageRecovery):
        return OVERHEAD + sum(_recovery(each, runs.attacker.epochs) for each in runs.with_seed(run.seed).values())
    if isinstance(runs, GroupComparison) and any(each.needs_profiling_by_clients for each in runs.groupings.values()):
        experiment = runs.experiment(run.seed)
        epochs = {
            each.profile_cache_key: each.epochs or 10
            for each in runs.groupings.values()
            if each.needs_profiling_by_clients
        }
        return OVERHEAD + sum(epochs.values()) * sizes_of(experiment.data).train * pace_of(experiment, MOST_LANES)
    return OVERHEAD


def _recovery(experiment: fr.Experiment, epochs: int) -> float:
    """A run with an attacker: at each hop to it, a generator is trained that is much slower than the model."""
    sizes = sizes_of(experiment.data)
    hops = experiment.fraction * experiment.rounds
    generated = GENERATING * hops * (epochs * sizes.train / sizes.clients + GENERATED)
    return (samples_of(experiment)[0] + generated) * pace_of(experiment, MOST_LANES)


def samples_of(experiment: fr.Experiment) -> tuple[float, int]:
    """How many samples a run trains on, evaluations included, and how many models travel side by side."""
    sizes = sizes_of(experiment.data)
    unprofiled, profile_epochs = _without_profiles(experiment)
    run = prepare(unprofiled, federation=_stand_in(sizes))
    rounds = np.unique(np.linspace(1, experiment.rounds, PLANNED_ROUNDS).astype(int)).tolist()
    plans = [run.planner.plan(round) for round in rounds]
    size = run.prepared.federation.sample_count
    planned = [sum(size(client) for route in plan.routes for client in route.clients) for plan in plans]
    trained = float(np.mean(planned)) * experiment.rounds * experiment.train.epochs
    evaluated = math.ceil(experiment.rounds / experiment.eval.every) * sizes.test
    samples = trained + profile_epochs * sizes.train + EVALUATING * evaluated
    return samples, min(MOST_LANES, max(len(plan.routes) for plan in plans))


def pace_of(experiment: fr.Experiment, lanes: int) -> float:
    """Seconds to train on one sample."""
    data, sizes = experiment.data, sizes_of(experiment.data)
    terms = [name.strip() for name in experiment.method.split("+") if METHODS[name.strip()].terms]
    if "ewc" in terms:
        terms.append("fedcyclic")
    measured = fr.Experiment(
        method="+".join(terms) or "fedavg",
        data=DataSettings(name=data.name, path=data.path, clients=lanes),
        model=experiment.model,
        train=experiment.train.model_copy(update={"epochs": 1}),
        terms=experiment.terms if terms else {},
        engine=experiment.engine,
        rounds=2,
        fraction=1.0,
    )
    samples = max(1, min(sizes.train // sizes.clients, MEASURED_SAMPLES))
    return _measured_pace(measured.model_dump_json(exclude={"out"}), lanes, samples)


@lru_cache(maxsize=256)
def _measured_pace(experiment: str, lanes: int, samples: int) -> float:
    """Seconds per sample in the second of two rounds."""
    wanted = fr.Experiment.model_validate_json(experiment)
    dataset = _load(wanted.data.name, wanted.data.path)
    rows = np.resize(np.arange(len(dataset.y_train)), lanes * samples)
    federation = fr.federate(
        dataset.x_train[rows],
        dataset.y_train[rows],
        dataset.x_test[:20],
        dataset.y_test[:20],
        client_ids=np.arange(lanes * samples) // samples,
        classes=dataset.classes,
        kind=dataset.kind,
    )
    watch = _Stopwatch()
    with one_thread():
        run_experiment(wanted, federation=federation, callbacks=watch)
    return watch.lap / (lanes * samples)


class _Stopwatch(Callback):
    """Measures the last round in processor time: other programs on the machine do not count."""

    def __init__(self) -> None:
        self.then, self.lap = time.process_time(), 0.0

    def on_round_end(self, context: RoundContext) -> None:
        now = time.process_time()
        self.lap, self.then = now - self.then, now


def _without_profiles(experiment: fr.Experiment) -> tuple[fr.Experiment, int]:
    """The same plans, or nearly, without training before the first round, and the epochs that it takes each client."""
    method, epochs = build_method(experiment), 0
    update: dict[str, object] = {"model": experiment.model.model_copy(update={"name": "mlp", "hidden": None})}
    if method.grouping is not None and method.grouping.needs_profiling_by_clients:
        epochs = method.grouping.epochs or 10
        bounds = {name: value for name, value in experiment.grouping.items() if name in ("max_clients", "min_samples")}
        counted = method.route.chooses_group_count
        update["grouping"] = {"assign": "icg", "profile": "counts"} if counted else {"assign": "random", **bounds}
    selector = method.warmup.selector if method.warmup is not None else None
    if selector is not None and selector.needs_vectors:
        epochs += 1
        update["warmup"] = {**experiment.warmup, "select": {"by": "random", "count": selector.count}}
    return experiment.model_copy(update=update), epochs


@dataclass(frozen=True)
class Sizes:
    """How much data an experiment has."""

    train: int
    test: int
    clients: int
    classes: int


def sizes_of(data: DataSettings) -> Sizes:
    """How much data an experiment has."""
    dataset = _load(data.name, data.path)
    train = data.samples or len(dataset.y_train)
    if data.partition == "shards" and data.shard_size is not None and data.clients is not None:
        train = data.clients * data.shards_per_client * data.shard_size
    owners = dataset.client_train
    holders = len(np.unique(owners)) if owners is not None and data.alpha is None else DEFAULT_CLIENTS
    return Sizes(train, data.test_samples or len(dataset.y_test), data.clients or holders, dataset.classes)


def _stand_in(sizes: Sizes) -> fr.Federation:
    """A federation of that size with next to nothing in it; all clients have equally many samples."""
    train, test = np.arange(sizes.train), np.arange(sizes.test)
    x, x_test = (np.zeros((len(each), 1), np.float32) for each in (train, test))
    holders = train * sizes.clients // sizes.train
    return fr.federate(
        x, train % sizes.classes, x_test, test % sizes.classes, client_ids=holders, classes=sizes.classes
    )


_load = lru_cache(maxsize=8)(load_dataset)
