"""The sets of clients of the contest, and runs of methods on them."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fedrelay as fr
from fedrelay.engines.local.executor import one_thread
from fedrelay.experiment.method_grammar import parse_method
from fedrelay.experiment.prepare import PreparedRun, prepare
from fedrelay.experiment.spec import experiment
from fedrelay.routes.base import sampled_count
from fedrelay.runtime.round_loop import run_prepared

DOCS = Path(__file__).parent.parent / "docs"
SEEDS = (1, 2, 3, 4, 5)
FROZEN_ON = "2026-11-18"
"""When our own method and the rules were settled; no frozen cell was run before."""

VALIDATION = 0.2


@dataclass(frozen=True)
class Cell:
    """Clients, a model, and how long they train."""

    name: str
    title: str
    data: str
    rounds: int
    settings: Mapping[str, Any]
    client_count: int = 100
    frozen: bool = False
    """Whether our own method was settled before this cell was run for the first time."""

    small: bool = False
    """Whether there are so few samples that chance decides unless there are more seeds."""

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """Settings are chosen by the mean over these."""
        return (101, 102, 103) if self.small else (101,)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the final."""
        return tuple(range(1, 11)) if self.small else SEEDS

    @property
    def clients_per_round(self) -> int:
        return sampled_count(self.client_count, self.settings["fraction"])


def _images(name: str, title: str, data: str, alpha: float, fraction: float, *, frozen: bool, **other: Any) -> Cell:
    settings = {"clients": 100, "alpha": alpha, "fraction": fraction, "batch_size": 10, **other}
    title = f"{title}, α = {alpha:g}, C = {fraction:g}"
    return Cell(name, title, data, settings.pop("rounds"), settings, settings["clients"], frozen, data == "digits")


_FASHION = {"samples": 6000, "test_samples": 2000, "model": "mlp", "rounds": 60}
_CIFAR = {"samples": 4000, "test_samples": 2000, "model": "cnn-s", "rounds": 60, "clients": 50}
CELLS = (
    _images("digits-0", "Digits", "digits", 0.0, 0.2, frozen=False, model="mlp", rounds=60),
    _images("digits-0.1", "Digits", "digits", 0.1, 0.05, frozen=True, model="mlp", rounds=120),
    _images("digits-0.5", "Digits", "digits", 0.5, 0.2, frozen=False, model="mlp", rounds=60),
    _images("fashion-0", "Fashion-MNIST", "fashion-mnist", 0.0, 0.2, frozen=False, **_FASHION),
    _images("fashion-0-few", "Fashion-MNIST", "fashion-mnist", 0.0, 0.05, frozen=True, **{**_FASHION, "rounds": 160}),
    _images("fashion-0.1", "Fashion-MNIST", "fashion-mnist", 0.1, 0.2, frozen=True, **_FASHION),
    _images("fashion-0.5", "Fashion-MNIST", "fashion-mnist", 0.5, 0.1, frozen=False, **{**_FASHION, "rounds": 100}),
    _images("cifar-0", "CIFAR-10", "cifar10", 0.0, 0.2, frozen=False, **_CIFAR),
    _images("cifar-0.1", "CIFAR-10", "cifar10", 0.1, 0.1, frozen=True, **{**_CIFAR, "rounds": 100}),
    _images("cifar-0.5", "CIFAR-10", "cifar10", 0.5, 0.2, frozen=True, **_CIFAR),
    Cell(
        "femnist",
        "FEMNIST, 100 writers, C = 0.1",
        "femnist",
        50,
        {"clients": 100, "fraction": 0.1, "model": "cnn-s", "batch_size": 10},
    ),
    Cell(
        "femnist-all",
        "FEMNIST, 16 writers, C = 1",
        "femnist",
        48,
        {"clients": 16, "fraction": 1.0, "model": "cnn-s", "batch_size": 10},
        client_count=16,
        frozen=True,
    ),
    Cell(
        "hospitals",
        "Heart disease, four hospitals, C = 1",
        "heart-disease",
        20,
        {"fraction": 1.0, "batch_size": 16},
        client_count=4,
        small=True,
    ),
    Cell(
        "hospitals-half",
        "Heart disease, four hospitals, C = 0.5",
        "heart-disease",
        40,
        {"fraction": 0.5, "batch_size": 16},
        client_count=4,
        frozen=True,
        small=True,
    ),
    Cell(
        "vowel",
        "Vowels, 15 speakers, C = 0.4",
        "vowel",
        60,
        {"fraction": 0.4, "model": "mlp", "batch_size": 8},
        client_count=15,
        small=True,
    ),
    Cell(
        "shakespeare",
        "Shakespeare, 40 roles, C = 0.2",
        "shakespeare",
        30,
        {"clients": 40, "fraction": 0.2, "batch_size": 32, "samples": 4000, "test_samples": 2000},
        client_count=40,
        frozen=True,
    ),
)


def smoke_cell(cell: Cell) -> Cell:
    """A cell that only shows whether a script works."""
    settings = {**cell.settings, "samples": 300, "clients": 10}
    return replace(cell, rounds=2, settings=settings, client_count=10, small=False)


def without_unscored_evaluations(run: PreparedRun) -> PreparedRun:
    """The same run, evaluated only twice: a score is the mean of the last two evaluations of a run.

    Which rounds these are follows from the plans of all rounds, unless there are faults; where methods do more updates
    in a round, runs end sooner.
    """
    settings = run.prepared.experiment
    if run.planner.faults.possible:
        return run
    updates, last = (run.costs.setup_line() or {}).get("client_updates", 0), 0
    while last < settings.rounds and updates < settings.stop.max_updates:
        last += 1
        updates += run.planner.plan(last).client_updates
    before_last = (last - 1) // settings.eval.every * settings.eval.every
    if before_last <= 0:  # evaluated once, at its end
        return run
    evaluated = settings.model_copy(update={"eval": settings.eval.model_copy(update={"every": before_last})})
    return run._replace(prepared=replace(run.prepared, experiment=evaluated))


def validation_scores(found: Sequence[Mapping[str, Any]], seeds: int) -> list[float | None]:
    """The mean score of each trial on validation samples; its runs, one for each seed, follow each other.

    A trial with a run that diverged has none.
    """
    scores = [each["validation"] for each in found]
    trials = [scores[place : place + seeds] for place in range(0, len(scores), seeds)]
    return [None if None in trial else statistics.fmean(trial) for trial in trials]


@dataclass(frozen=True)
class CellRun:
    """One run of a method in a cell: what is asked for."""

    cell: Cell
    name: str
    method: str
    settings: Mapping[str, Any]
    """What differs from the defaults of method and cell."""

    chosen: Mapping[str, float]
    """What was tuned."""

    seed: int
    rounds: int
    evaluations: int = 20
    """How often a run with a curve is evaluated; without one, only the last two of them take place."""

    keeps_curve: bool = False

    @property
    def key(self) -> str:
        """By which its result is found again; other settings, also of the method itself, have another key."""
        chosen = ", ".join(f"{path} {value:g}" for path, value in sorted(self.chosen.items()))
        everything = [repr(parse_method(self.method)), self.cell.data, VALIDATION, self.all_settings, self.keeps_curve]
        digest = hashlib.sha256(json.dumps(everything, sort_keys=True, default=str).encode()).hexdigest()[:8]
        return f"{self.name} | {chosen} | {self.rounds} rounds | seed {self.seed} | {digest}"

    @property
    def all_settings(self) -> dict[str, Any]:
        """All settings that are not the same in every run."""
        return {
            **self.cell.settings,
            **self.settings,
            **self.chosen,
            "rounds": self.rounds,
            "seed": self.seed,
            "eval": {"every": max(1, self.rounds // self.evaluations), "last": 2},
            "stop": {"max_updates": self.cell.clients_per_round * self.rounds},
        }

    def measure(self) -> dict[str, Any]:
        """Do it. A run that diverges has no score."""
        common = {"data": self.cell.data, "validation": VALIDATION, "workers": 1}
        try:
            with one_thread():
                run = prepare(experiment(self.method, **common, **self.all_settings))
                found = run_prepared(run if self.keeps_curve else without_unscored_evaluations(run))
        except fr.DivergedError:
            return {"score": None, "validation": None}
        columns = ("round", "client_updates", "bytes", found.metric)
        curve = [[row[column] for column in columns] for row in found.history]
        return {
            "metric": found.metric,
            "score": found.score_last,
            "validation": statistics.fmean(row[f"validation_{found.metric}"] for row in found.history[-2:]),
            "updates": found.client_updates,
            "rounds": found.rounds,
            "bytes": found.bytes,
            "virtual_seconds": found.virtual_seconds,
            "seconds": found.seconds,
            **({"curve": curve} if self.keeps_curve else {}),
        }
