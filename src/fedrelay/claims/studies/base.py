"""What every study has in common, and studies that are done in one go.

A study is a folder and the settings of what is in it. It names its subjects before anything is run, runs piece by
piece, and reads what is there. Running something again continues it.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedrelay.claims.subjects import Subject
from fedrelay.data.registry import DATASETS
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.catalogue import experiments
from fedrelay.experiment.spec import Comparison, ComparisonEntry, DataSettings, Experiment, validate
from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.loop import Observer

Measures = dict[str, float | None]


@dataclass(frozen=True)
class Piece:
    """What one process does at a time: all subjects, or one of them, with one seed."""

    seed: int
    subject: str | None = None


@dataclass(frozen=True)
class Study(ABC):
    """One experiment of a claim."""

    title: str
    folder: Path
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]

    @property
    @abstractmethod
    def subjects(self) -> tuple[str, ...]:
        """The names that criteria know it by."""

    @property
    @abstractmethod
    def data(self) -> DataSettings:
        """The data it needs."""

    @property
    def missing(self) -> str | None:
        """The data set, if it is not there on this machine."""
        source = DATASETS.get(self.data.name)
        return self.data.name if source is not None and source.find(self.data.path) is None else None

    def label(self, subject: str) -> str:
        """What tables call a subject."""
        return subject

    @property
    @abstractmethod
    def pieces(self) -> list[Piece]:
        """All there is to run."""

    @abstractmethod
    def open(self) -> None:
        """Take the folder, or one that holds this very study."""

    @abstractmethod
    def done(self, piece: Piece) -> bool:
        """Whether a piece was run already."""

    @abstractmethod
    def run(self, piece: Piece, observer: Observer | None = None) -> None:
        """Do one piece, from where it was left."""

    @abstractmethod
    def subject(self, name: str, seed: int) -> Subject:
        """What was measured of a subject with one seed."""

    @abstractmethod
    def seconds(self, seed: int) -> float:
        """How long all subjects took with one seed."""


class Quick(Study):
    """A study whose measures are worked out in one go, and kept in one file for each seed."""

    @abstractmethod
    def measured(self, seed: int) -> dict[str, Measures]:
        """The measures of all subjects."""

    @property
    def pieces(self) -> list[Piece]:
        """One for each seed."""
        return [Piece(seed) for seed in self.seeds]

    def open(self) -> None:
        """By the settings that are noted in the folder."""
        spec = yaml.safe_dump(json.loads(json.dumps(self.settings, default=str))).encode()
        path = self.folder / "study.yaml"
        if any(self.folder.glob("seed-*.json")) and path.read_bytes() != spec:
            raise holds_something_else(self.folder)
        make_folder(self.folder)
        write_atomically(path, spec)

    def done(self, piece: Piece) -> bool:
        """Whether the file is there."""
        return self._file(piece.seed).is_file()

    def run(self, piece: Piece, observer: Observer | None = None) -> None:
        """Write the file."""
        began = time.monotonic()
        found = self.measured(piece.seed)
        text = json.dumps({"seconds": round(time.monotonic() - began, 3), "subjects": found}, indent=1)
        write_atomically(self._file(piece.seed), f"{text}\n".encode())

    def subject(self, name: str, seed: int) -> Subject:
        """What the file says."""
        path = self._file(seed)
        if not path.is_file():
            return Subject(name, {}, problem=f"seed {seed} was not run")
        found = read_json(path).get("subjects", {})
        if name not in found:
            raise RunFolderError(f"{path}: is damaged (there is no {name!r})")
        return Subject(name, found[name])

    def seconds(self, seed: int) -> float:
        """How long it took."""
        path = self._file(seed)
        return float(read_json(path).get("seconds", 0.0)) if path.is_file() else 0.0

    def _file(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}.json"


class WithMethods(Study):
    """A study of methods, whose settings are those of a comparison."""

    @cached_property
    def comparison(self) -> Comparison:
        """The comparison."""
        return self.compared(self.settings)

    def compared(self, settings: Mapping[str, Any]) -> Comparison:
        """Settings as a comparison, each of its runs on one core."""
        tree = {**settings, "seeds": self.seeds, "engine": {"workers": 1, **settings.get("engine", {})}}
        return validate(Comparison, tree).model_copy(update={"out": self.folder})

    @cached_property
    def runs(self) -> dict[tuple[str, int], tuple[ComparisonEntry, Experiment]]:
        """Every run, by the method's name in criteria and the seed."""
        found: dict[tuple[str, int], tuple[ComparisonEntry, Experiment]] = {}
        for entrant, experiment in experiments(self.comparison):
            key = identifier(entrant.name), experiment.seed
            if key in found:
                raise SpecError(f"methods: {found[key][0].name!r} and {entrant.name!r} are both {key[0]} in criteria")
            found[key] = entrant, experiment
        return found

    @property
    def subjects(self) -> tuple[str, ...]:
        """Its methods."""
        return tuple(dict.fromkeys(name for name, _ in self.runs))

    @property
    def data(self) -> DataSettings:
        """Those of all its methods."""
        return self.comparison.data

    def label(self, subject: str) -> str:
        """As the comparison has it."""
        return self.runs[subject, self.seeds[0]][0].name


def identifier(label: str) -> str:
    """A label as a name in criteria: `fedseq+feddyn` → `fedseq_feddyn`."""
    name = re.sub(r"\W+", "_", label).strip("_").lower()
    return f"_{name}" if name[:1].isdigit() else name


def read_json(path: Path) -> dict[str, Any]:
    """The object of a file."""
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None


def holds_something_else(folder: Path) -> RunFolderError:
    """The error where a folder has runs that are not those asked for."""
    return RunFolderError(f"{folder}: holds runs with other settings; remove it, or choose another --out")
