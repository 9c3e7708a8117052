"""How long it will take: what there is to train, by plans alone, times how fast this machine trains it.

A run's plans are made for stand-ins of its clients, of equal size. How fast its model trains is measured on a few of
the data for a round or two, with the same local terms and as many models side by side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedrelay.claims.cases import Case
from fedrelay.claims.running import Job
from fedrelay.claims.studies import CompareStudy, GroupStudy, SpyStudy
from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation, Federation, federate
from fedrelay.data.partition import DEFAULT_CLIENTS, ClientIndices
from fedrelay.data.registry import load_dataset
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.quiet import errors_only
from fedrelay.experiment.catalogue import CATALOGUE, recipe
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import DataSettings, Experiment
from fedrelay.runtime.loop import Silent, run_experiment
from fedrelay.runtime.result import Row

PLANNED_ROUNDS = 5
"""So many rounds of a run are planned, evenly chosen."""

MEASURED_SAMPLES = 160
"""So many samples at most has a client of a measurement."""

MOST_LANES = 8
"""So many models are trained side by side in a measurement, at most."""

JUDGING = 0.25
"""What judging a sample takes, as a share of training on it."""

DRAWING, DRAWN = 50, 5000
"""What a step of a spy's generator takes, in steps of the model, and the images it draws after each visit."""

OVERHEAD = 1.0
"""Seconds for everything else: reading data, starting, forming groups."""


@dataclass(frozen=True)
class Workload:
    """What a run trains and judges, in samples, and how many models travel side by side."""

    trained: float
    judged: float
    lanes: int


@dataclass(frozen=True)
class Estimate:
    """Seconds of one core that a claim still needs; what claims share counts for the first of them."""

    case: Case
    seconds: float
    runs: int


def estimate(cases: Sequence[Case], jobs: Sequence[Job]) -> list[Estimate]:
    """How long every claim will take."""
    with errors_only("fedrelay"):  # what is noted of stand-ins is nobody's business
        return list(_estimated(cases, jobs))


def _estimated(cases: Sequence[Case], jobs: Sequence[Job]) -> Iterator[Estimate]:
    seconds: dict[tuple[object, ...], float] = {}
    left = {(job.study.folder, job.piece): job for job in jobs if not job.done}
    for case in cases:
        own = [left.pop(key) for study in case.studies.values() for piece in study.pieces
               if (key := (study.folder, piece)) in left]  # fmt: skip
        total = 0.0
        for job in own:
            kind = job.study.folder, job.piece.subject
            if kind not in seconds:
                seconds[kind] = job_seconds(job)
            total += seconds[kind]
        yield Estimate(case, total, len(own))


def job_seconds(job: Job) -> float:
    """How long one job takes on one core."""
    study = job.study
    if isinstance(study, CompareStudy):
        _, experiment = study.runs[str(job.piece.subject), job.piece.seed]
        work = workload(experiment)
        return OVERHEAD + (work.trained + JUDGING * work.judged) * pace_of(experiment, work.lanes)
    if isinstance(study, SpyStudy):
        runs = [experiment for (_, seed), (_, experiment) in study.runs.items() if seed == job.piece.seed]
        return OVERHEAD + sum(_spied(experiment, study.spy.epochs) for experiment in runs)
    if isinstance(study, GroupStudy) and any(way.trains for way in study.ways.values()):
        experiment = study.experiment(job.piece.seed)
        dataset = _loaded(experiment.data)
        kinds = {way.description: way.epochs or 10 for way in study.ways.values() if way.trains}
        return OVERHEAD + sum(kinds.values()) * _train_size(dataset, experiment.data) * pace_of(experiment, MOST_LANES)
    return OVERHEAD


def _spied(experiment: Experiment, epochs: int) -> float:
    """A run with a spy: the run, and at each of its visits a generator some fifty times as slow as the model."""
    work, pace = workload(experiment), pace_of(experiment, MOST_LANES)
    data = experiment.data
    own = _train_size(_loaded(data), data) / (data.clients or DEFAULT_CLIENTS)
    visits = experiment.fraction * experiment.rounds
    return (work.trained + DRAWING * visits * (epochs * own + DRAWN)) * pace


def workload(experiment: Experiment) -> Workload:
    """What a run trains and judges."""
    dataset = _loaded(experiment.data)
    setting = prepare(_without_profiles(experiment), federation=_stand_in(dataset, experiment.data))
    rounds = np.unique(np.linspace(1, experiment.rounds, PLANNED_ROUNDS).astype(int)).tolist()
    plans = [setting.plan(round) for round in rounds]
    size = setting.federation.size
    samples = [sum(size(client) for route in plan.routes for client in route.clients) for plan in plans]
    trained = float(np.mean(samples)) * experiment.rounds * experiment.train.epochs
    return Workload(
        trained=trained + _profiled(experiment) * _train_size(dataset, experiment.data),
        judged=math.ceil(experiment.rounds / experiment.eval.every) * _test_size(dataset, experiment.data),
        lanes=min(MOST_LANES, max(len(plan.routes) for plan in plans)),
    )


def pace_of(experiment: Experiment, lanes: int) -> float:
    """Seconds for training on one sample."""
    data = experiment.data
    size = _train_size(_loaded(data), data) // (data.clients or DEFAULT_CLIENTS)
    terms = [name.strip() for name in experiment.method.split("+") if CATALOGUE[name.strip()].terms]
    if "ewc" in terms:
        terms.append("fedcyclic")
    measured = Experiment(
        method="+".join(terms) or "fedavg",
        data=DataSettings(name=data.name, path=data.path, clients=lanes),
        model=experiment.model,
        train=experiment.train.model_copy(update={"epochs": 1}),
        terms=experiment.terms if terms else {},
        engine=experiment.engine,
        rounds=2,
        fraction=1.0,
    )
    return _measured(measured.model_dump_json(exclude={"out"}), lanes, max(1, min(size, MEASURED_SAMPLES)))


@lru_cache(maxsize=256)
def _measured(experiment: str, lanes: int, samples: int) -> float:
    """The second of two rounds, per sample."""
    wanted = Experiment.model_validate_json(experiment)
    dataset = _loaded(wanted.data)
    rows = np.resize(np.arange(len(dataset.y_train)), lanes * samples)
    part = replace(dataset, x_test=dataset.x_test[:20], y_test=dataset.y_test[:20])
    federation = ArrayFederation(part, ClientIndices(rows, np.arange(lanes + 1) * samples), seed=1)
    watch = _Stopwatch()
    with one_thread():
        run_experiment(wanted, federation=federation, observer=watch)
    return watch.lap / (lanes * samples)


class _Stopwatch(Silent):
    """Notes how long the last round took."""

    def __init__(self) -> None:
        self.then, self.lap = time.process_time(), 0.0

    def round_done(self, round: int, row: Row | None) -> None:
        """The time since the round before, without what others on the machine took."""
        now = time.process_time()
        self.lap, self.then = now - self.then, now


def _without_profiles(experiment: Experiment) -> Experiment:
    """The same plans, or nearly, without anybody having to train before the first round."""
    method = recipe(experiment)
    update: dict[str, object] = {"model": experiment.model.model_copy(update={"name": "mlp", "hidden": None})}
    if method.grouping is not None and method.grouping.trains:
        bounds = {name: value for name, value in experiment.grouping.items() if name in ("max_clients", "min_samples")}
        counted = method.route.counts_groups
        update["grouping"] = {"assign": "icg", "profile": "counts"} if counted else {"assign": "random", **bounds}
    selector = method.warmup.selector if method.warmup is not None else None
    if selector is not None and selector.needs_vectors:
        update["warmup"] = {**experiment.warmup, "select": {"by": "random", "count": selector.count}}
    return experiment.model_copy(update=update)


def _profiled(experiment: Experiment) -> int:
    """How often every client goes through its samples before the first round."""
    method = recipe(experiment)
    grouping, warmup = method.grouping, method.warmup
    groups = grouping is not None and grouping.trains
    chosen = warmup is not None and warmup.selector is not None and warmup.selector.needs_vectors
    epochs = (grouping.epochs or 10) if groups and grouping is not None else 0
    return epochs + int(chosen)


def _stand_in(dataset: Dataset, data: DataSettings) -> Federation:
    """As many samples and clients, of equal size, with next to nothing in them."""
    train, test = _train_size(dataset, data), _test_size(dataset, data)
    owners = dataset.client_train
    holders = len(np.unique(owners)) if owners is not None and data.alpha is None else DEFAULT_CLIENTS
    clients = data.clients or holders
    return federate(
        np.zeros((train, 1), np.float32),
        np.arange(train) % dataset.classes,
        np.zeros((test, 1), np.float32),
        np.arange(test) % dataset.classes,
        client_ids=np.arange(train) * clients // train,
        classes=dataset.classes,
    )


def _train_size(dataset: Dataset, data: DataSettings) -> int:
    if data.partition == "shards" and data.shard_size is not None and data.clients is not None:
        return data.clients * data.shards_per_client * data.shard_size
    return data.samples or len(dataset.y_train)


def _test_size(dataset: Dataset, data: DataSettings) -> int:
    return data.test_samples or len(dataset.y_test)


def _loaded(data: DataSettings) -> Dataset:
    return _load(data.name, data.path)


_load = lru_cache(maxsize=8)(load_dataset)
