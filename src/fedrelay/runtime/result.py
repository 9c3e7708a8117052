"""What a run gives back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedrelay.experiment.spec import Experiment
from fedrelay.metrics.curves import mean_of_last, rounds_to_target, target_accuracies
from fedrelay.models.flat_layout import weights_sha256

Row = dict[str, Any]


COSTS = ("round", "client_updates", "bytes", "virtual_seconds")
"""The costs of reaching an accuracy."""


def share_name(share: float) -> str:
    """A share as the name of a value, `0.7`; different shares have different names."""
    return repr(float(share)).removesuffix(".0")


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table for notebooks; all text is escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, repr=False)
class Result:
    """The history and the final model of one run.

    `history` is a list of rows, one for every evaluated round; `pandas.DataFrame(result.history)` is a table of them.
    """

    experiment: Experiment
    history: Sequence[Row]
    weights: Tensor
    model: Mapping[str, Tensor]
    rounds: int
    client_updates: int
    longest_route: int
    transfers: Mapping[str, int]
    bytes: int
    seconds: float
    virtual_seconds: float = 0.0
    """How long the run takes by the virtual clock."""

    idle_seconds: float = 0.0
    """How long models wait for others by the virtual clock, summed."""

    computing_seconds: float = 0.0
    communicating_seconds: float = 0.0
    """T_comp and T_comm of FedGSP's cost model: training of the longest route of each round and merging, and all
    transfers as if they were done one after another. D_comm is `bytes`."""

    selection_seconds: float = 0.0
    """Real seconds of selecting the clients of a warm-up."""

    fault_events: Mapping[str, int] = field(default_factory=dict)
    """What went wrong → how often."""

    attack: Mapping[str, Any] = field(default_factory=dict)
    """Which clients attacked, and how much; empty where none did."""

    privacy: Mapping[str, Any] = field(default_factory=dict)
    """The privacy that clients have spent; empty without differential privacy."""

    hop_overhead: float | None = None
    """Mean seconds of a hop beside the client's own, where hops are messages."""

    run: Path | None = None
    stopped: str = ""
    """Why the run stopped before its last round; empty if it did not."""

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        return html_table(["", "value"], [[name, value] for name, value in self._facts().items()])

    def _facts(self) -> dict[str, str]:
        """The most important numbers, as text."""
        return {
            "method": repr(self.experiment.method),
            "data": repr(self.experiment.data.name),
            "accuracy": f"{self.accuracy:.4f}",
            "rounds": f"{self.rounds}/{self.experiment.rounds}",
            "client_updates": f"{self.client_updates}",
            "transfers": f"{sum(self.transfers.values())}",
            "bytes": f"{self.bytes}",
        }

    @property
    def complete(self) -> bool:
        """Whether all rounds are done, or the run was stopped before by its settings or a callback."""
        return bool(self.stopped) or self.rounds >= self.experiment.rounds

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, between 0 and 1."""
        return float(self.history[-1]["accuracy"]) if self.history else float("nan")

    @property
    def accuracy_last(self) -> float:
        """Mean test accuracy of the last `eval.last` evaluations."""
        accuracies = [row["accuracy"] for row in self.history]
        return mean_of_last(accuracies, self.experiment.eval.last) if accuracies else float("nan")

    @property
    def accuracy_classes(self) -> float | None:
        """The same on `eval.classes` alone; None without such classes."""
        known = [row["accuracy_classes"] for row in self.history if row.get("accuracy_classes") is not None]
        return mean_of_last(known, self.experiment.eval.last) if known else None

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the final weights: the same for all runs of a spec, on every engine, resumed or not."""
        return weights_sha256(self.weights)

    def rounds_to(self, accuracy: float) -> int | None:
        """The first evaluated round with at least this test accuracy."""
        return rounds_to_target(
            [row["round"] for row in self.history], [row["accuracy"] for row in self.history], accuracy
        )

    def costs_to(self, accuracy: float) -> Row | None:
        """The costs up to the first evaluated round with at least this test accuracy; None if there is none."""
        reached = next((row for row in self.history if row["accuracy"] >= accuracy), None)
        return None if reached is None else {name: reached.get(name) for name in COSTS}

    def rounds_to_targets(self, reference: float | None = None) -> dict[float, int | None]:
        """Rounds to each share of `eval.targets` of the reference accuracy."""
        settings = self.experiment.eval
        goals = target_accuracies(reference or settings.reference or 1.0, settings.targets)
        return {share: self.rounds_to(goal) for share, goal in goals.items()}

    def load_into(self, module: torch.nn.Module) -> torch.nn.Module:
        """Put the trained weights into a module of the same architecture."""
        module.load_state_dict(dict(self.model))
        return module

    def summary(self) -> dict[str, Any]:
        """The run in one flat object, as `--json` prints it."""
        last = self.history[-1] if self.history else {}
        return {
            "method": self.experiment.method,
            "data": self.experiment.data.name,
            "seed": self.experiment.seed,
            "rounds": self.rounds,
            "complete": self.complete,
            "stopped": self.stopped or None,
            "accuracy": self.accuracy,
            "accuracy_last": self.accuracy_last,
            "accuracy_classes": self.accuracy_classes,
            "loss": last.get("loss"),
            "precision": last.get("precision"),
            "recall": last.get("recall"),
            "f1": last.get("f1"),
            "rounds_to": {share_name(share): rounds for share, rounds in self.rounds_to_targets().items()},
            "transfers": dict(self.transfers),
            "bytes": self.bytes,
            "client_updates": self.client_updates,
            "longest_route": self.longest_route,
            "virtual_seconds": self.virtual_seconds,
            "idle_seconds": self.idle_seconds,
            "computing_seconds": self.computing_seconds,
            "communicating_seconds": self.communicating_seconds,
            "selection_seconds": round(self.selection_seconds, 3),
            "fault_events": dict(self.fault_events),
            "attack": dict(self.attack),
            "privacy": {name: value if math.isfinite(value) else None for name, value in self.privacy.items()},
            "hop_overhead": None if self.hop_overhead is None else round(self.hop_overhead, 4),
            "seconds": round(self.seconds, 3),
            "run": str(self.run) if self.run else None,
            "weights_sha256": self.weights_sha256,
        }
