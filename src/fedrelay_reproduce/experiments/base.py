"""What all kinds of experiments have in common: runs in a folder, which can be continued, and what they measured."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import yaml

import fedrelay as fr
from fedrelay.data.registry import DATASETS
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.spec import ComparisonEntry, DataSettings, validate
from fedrelay.files import make_folder, write_atomically
from fedrelay_reproduce.criteria import Measured
from fedrelay_reproduce.records import Record, measured_of

Values = dict[str, float | None]
"""Measures by name."""


@dataclass(frozen=True)
class ExperimentRuns(ABC):
    """One experiment of a claim at one scale, measured as a whole: one JSON file for each seed."""

    title: str
    folder: Path
    spec: Mapping[str, Any]
    seeds: tuple[int, ...]
    record: Record | None = None
    """What is known of runs that are not here, see `records`."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What criteria know its results by: labels of methods or groupings."""

    @property
    @abstractmethod
    def data(self) -> DataSettings:
        """The data it needs."""

    def measure(self, seed: int) -> dict[str, Values]:
        """The measures of all methods or groupings."""
        raise NotImplementedError

    @property
    def missing_data(self) -> str | None:
        """The name of the data set if it is not on this machine."""
        source = DATASETS.get(self.data.name)
        return self.data.name if source is not None and source.find(self.data.path) is None else None

    @property
    def runs(self) -> list[ClaimRun]:
        """All there is to run."""
        return [ClaimRun(self, seed) for seed in self.seeds]

    def open(self) -> None:
        """Create the folder, or check that it holds this very experiment."""
        spec = yaml.safe_dump(json.loads(json.dumps(self.spec, default=str))).encode()
        path = self.folder / "experiment.yaml"
        if any(self.folder.glob("seed-*.json")) and (not path.is_file() or path.read_bytes() != spec):
            raise other_settings(self.folder)
        make_folder(self.folder)
        write_atomically(path, spec)

    def done(self, run: ClaimRun) -> bool:
        """Whether a run is complete or has failed for good, here or by the record."""
        return self.done_here(run) or self.recorded(run.method or self.names[0], run.seed) is not None

    def done_here(self, run: ClaimRun) -> bool:
        """Whether a run is complete or has failed for good in the folder."""
        return self._file(run.seed).is_file()

    def finished(self, name: str, seed: int) -> bool:
        """Whether everything is known of a method or grouping with one seed."""
        return any(run.done for run in self.runs if run.seed == seed and run.method in (None, name))

    def recorded(self, name: str, seed: int) -> Measured | None:
        """What the record says of a run."""
        return measured_of(self.record, name, seed) if self.record is not None else None

    def execute(self, run: ClaimRun) -> None:
        """Do one run, or continue it."""
        began = time.monotonic()
        found = self.measure(run.seed)
        text = json.dumps({"seconds": round(time.monotonic() - began, 3), "measured": found}, indent=1)
        write_atomically(self._file(run.seed), f"{text}\n".encode())

    def measured(self, name: str, seed: int) -> Measured:
        """What was measured of a method or grouping with one seed."""
        path = self._file(seed)
        if not path.is_file():
            return self.recorded(name, seed) or Measured(name, {}, problem=f"seed {seed} was not run")
        found = read_json(path).get("measured", {})
        if name not in found:
            raise fr.RunFolderError(f"{path}: is damaged ({name!r} is missing)")
        return Measured(name, found[name])

    def seconds(self, seed: int) -> float:
        """How long the runs with one seed took."""
        path = self._file(seed)
        return float(read_json(path).get("seconds", 0.0)) if path.is_file() else self.recorded_seconds(seed)

    def recorded_seconds(self, seed: int) -> float:
        """How long the runs with one seed took, by the record."""
        return float(self.record["seconds"].get(str(seed), 0.0)) if self.record is not None else 0.0

    def _file(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.json"


@dataclass(frozen=True)
class ClaimRun:
    """What a worker process does at a time: one method, or the whole experiment, with one seed."""

    experiment: ExperimentRuns
    seed: int
    method: str | None = None

    @property
    def title(self) -> str:
        """How progress lines call it."""
        return f"{self.experiment.title}{f' {self.method}' if self.method else ''}, seed {self.seed}"

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal runs of different claims."""
        return self.experiment.folder, self.seed, self.method

    @property
    def done(self) -> bool:
        return self.experiment.done(self)


class ComparedMethods(ExperimentRuns):
    """An experiment with several methods, whose settings are those of a comparison, and `others`."""

    others: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def comparison(self) -> fr.Comparison:
        """The comparison; each of its runs takes one core."""
        settings = {name: value for name, value in self.spec.items() if name not in self.others}
        tree = {**settings, "seeds": self.seeds, "engine": {"workers": 1, **settings.get("engine", {})}}
        return validate(fr.Comparison, tree).model_copy(update={"out": self.folder})

    @cached_property
    def experiments(self) -> dict[tuple[str, int], tuple[ComparisonEntry, fr.Experiment]]:
        """The run of every method and seed."""
        return {(entry.name, each.seed): (entry, each) for entry, each in experiments(self.comparison)}

    def with_seed(self, seed: int) -> dict[str, fr.Experiment]:
        """The runs of all methods with one seed."""
        return {name: experiment for (name, of), (_, experiment) in self.experiments.items() if of == seed}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self.experiments))

    @property
    def data(self) -> DataSettings:
        return self.comparison.data


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise fr.RunFolderError(f"{path}: is damaged ({error})") from None


def other_settings(folder: Path) -> fr.RunFolderError:
    """The error for a folder that holds runs of another experiment."""
    return fr.RunFolderError(f"{folder}: holds runs with other settings; remove it, or choose another --out")
