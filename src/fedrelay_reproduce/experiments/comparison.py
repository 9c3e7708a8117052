"""Methods are trained over seeds, in the folder of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedrelay.experiment.yaml_files import to_yaml
from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.comparison import run_entry
from fedrelay.runtime.comparison_result import load_comparison, run_folder
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import FAILURES, Failure
from fedrelay.runtime.spec_files import COMPARISON_SPEC
from fedrelay_reproduce.criteria import Measured
from fedrelay_reproduce.experiments.base import ClaimRun, ComparedMethods, Values, other_settings

_SUMMARISED = (
    "accuracy", "accuracy_last", "loss", "f1", "client_updates", "longest_route", "virtual_seconds", "bytes",
    "accuracy_classes", "seconds",
)  # fmt: skip
"""What is taken from a run's summary as it is."""


class ComparisonRuns(ComparedMethods):
    """One run for each method and seed. A run that failed for good leaves a note beside its folder."""

    @property
    def runs(self) -> list[ClaimRun]:
        return [ClaimRun(self, seed, name) for name, seed in self.experiments]

    def open(self) -> None:
        path, seeds = self.folder / COMPARISON_SPEC, self.seeds
        if path.is_file() and any(self.folder.glob("*/seed-*")):
            before = load_comparison(self.folder)
            if before.model_copy(update={"seeds": seeds}) != self.comparison:
                raise other_settings(self.folder)
            seeds = tuple(sorted({*before.seeds, *seeds}))
        make_folder(self.folder)
        spec = self.comparison.model_copy(update={"seeds": seeds}).model_dump(mode="json", exclude={"out"})
        write_atomically(path, to_yaml(spec).encode())

    def done_here(self, run: ClaimRun) -> bool:
        path = self.path(str(run.method), run.seed)
        return (path / "result.json").is_file() or _failure(path) is not None

    def execute(self, run: ClaimRun) -> None:
        entry, experiment = self.experiments[str(run.method), run.seed]
        try:
            run_entry(entry, experiment, self.folder)
        except tuple(kind for kind, _ in FAILURES.values()) as error:
            failure = next(name for name, (kind, _) in FAILURES.items() if isinstance(error, kind))
            note = _note(self.path(str(run.method), run.seed), failure)
            make_folder(note.parent)
            write_atomically(note, f"{error}\n".encode())

    def measured(self, name: str, seed: int) -> Measured:
        path, rounds = self.path(name, seed), self.comparison.rounds
        curve, summary = RunFolderReader(path).lines("metrics"), RunFolderReader(path).result
        if failure := _failure(path):
            return Measured(name, {}, curve, rounds, problem=f"{FAILURES[failure][1]} with seed {seed}")
        if summary is None:
            return self.recorded(name, seed) or Measured(name, {}, problem=f"seed {seed} was not run to its end")
        return Measured(name, measures(summary, curve), curve, rounds)

    def seconds(self, seed: int) -> float:
        return sum(self.measured(name, seed).values.get("seconds") or 0.0 for name in self.names)

    def path(self, method: str, seed: int) -> Path:
        return run_folder(self.folder, self.experiments[method, seed][0], seed)


def measures(summary: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> Values:
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
    return next((failure for failure in FAILURES if _note(run, failure).is_file()), None)
