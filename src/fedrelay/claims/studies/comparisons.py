"""Methods against each other: a comparison's folder, one run for each method and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from fedrelay.claims.studies.base import Measures, Piece, WithMethods, holds_something_else, read_json
from fedrelay.claims.subjects import Row, Subject
from fedrelay.errors import DivergedError, FruitlessError
from fedrelay.files import make_folder, write_atomically
from fedrelay.report.fate import FAILURES, Failure
from fedrelay.runtime.comparison import SPEC, load_comparison, run_entrant, run_folder
from fedrelay.runtime.loop import Observer
from fedrelay.runtime.store import Records

_SUMMARISED = (
    "accuracy", "accuracy_last", "loss", "f1", "client_updates", "longest_route", "virtual_seconds", "bytes",
    "accuracy_classes", "seconds",
)  # fmt: skip
"""What is read from a run's summary as it is."""


class CompareStudy(WithMethods):
    """Methods trained over seeds. That a run failed is noted beside its folder, which stays as it is."""

    @property
    def pieces(self) -> list[Piece]:
        """One for each run."""
        return [Piece(seed, name) for name, seed in self.runs]

    def open(self) -> None:
        """By the comparison that is in the folder; more seeds than before are welcome."""
        path, seeds = self.folder / SPEC, self.seeds
        if path.is_file() and any(self.folder.glob("*/seed-*")):
            before = load_comparison(self.folder)
            if before.model_copy(update={"seeds": seeds}) != self.comparison:
                raise holds_something_else(self.folder)
            seeds = tuple(sorted({*before.seeds, *seeds}))
        make_folder(self.folder)
        spec = self.comparison.model_copy(update={"seeds": seeds}).model_dump(mode="json", exclude={"out"})
        write_atomically(path, yaml.safe_dump(spec, sort_keys=False).encode())

    def done(self, piece: Piece) -> bool:
        """Whether a run is complete or came to a bad end."""
        path = self.path(piece)
        return (path / "result.json").is_file() or _failure(path) is not None

    def run(self, piece: Piece, observer: Observer | None = None) -> None:
        """One run."""
        entrant, experiment = self.runs[str(piece.subject), piece.seed]
        try:
            run_entrant(entrant, experiment, self.folder, observer=observer)
        except (DivergedError, FruitlessError) as error:
            failure = next(name for name, (kind, _) in FAILURES.items() if isinstance(error, kind))
            path = _note(self.path(piece), failure)
            make_folder(path.parent)
            write_atomically(path, f"{error}\n".encode())

    def subject(self, name: str, seed: int) -> Subject:
        """A run in numbers."""
        path, rounds = self.path(Piece(seed, name)), self.comparison.rounds
        curve = Records(path).lines("metrics")
        if failure := _failure(path):
            return Subject(name, {}, curve, rounds, problem=f"{FAILURES[failure][1]} with seed {seed}")
        if not (path / "result.json").is_file():
            return Subject(name, {}, problem=f"seed {seed} was not run to its end")
        return Subject(name, measures(read_json(path / "result.json"), curve), curve, rounds)

    def seconds(self, seed: int) -> float:
        """The sum over methods."""
        return sum(self.subject(name, seed).values.get("seconds") or 0.0 for name in self.subjects)

    def path(self, piece: Piece) -> Path:
        """Where a run lies."""
        entrant, _ = self.runs[str(piece.subject), piece.seed]
        return run_folder(self.folder, entrant, piece.seed)


def measures(summary: Mapping[str, Any], curve: Sequence[Row]) -> Measures:
    """The measures of a complete run."""
    accuracies = [row["accuracy"] for row in curve]
    changes = np.abs(np.diff(accuracies[len(accuracies) // 2 :]))
    return {
        **{name: summary.get(name) for name in _SUMMARISED},
        **summary["transfers"],
        "transfers": sum(summary["transfers"].values()),
        "accuracy_best": max(accuracies, default=None),
        "oscillation": float(changes.mean()) if len(changes) else None,
    }


def _note(run: Path, failure: Failure) -> Path:
    return run.with_name(f"{run.name}-{failure}.txt")


def _failure(run: Path) -> Failure | None:
    """How a run failed, if it did."""
    return next((failure for failure in FAILURES if _note(run, failure).is_file()), None)
