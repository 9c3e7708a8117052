"""What a run gives back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrelay.errors import SpecError
from fedrelay.experiment.sections import Training
from fedrelay.experiment.spec import Experiment
from fedrelay.metrics.curves import mean_of_last, rounds_to_target, target_scores
from fedrelay.notebook_display import NotebookDisplay
from fedrelay.runtime.client_scores import ClientScores, last_client_scores
from fedrelay.runtime.record_lines import Row
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts

if TYPE_CHECKING:
    from torch import Tensor, nn

UNDEFINED = "undefined"
"""Shown for a metric without a value."""

COSTS = ("round", "client_updates", "bytes", "virtual_seconds")
"""The costs of reaching a target."""

REAL_SECONDS = "real_seconds"
"""Another one, which is only known where clients are real, and read from a run folder."""


def share_name(share: float) -> str:
    """A share as the name of a value, `0.7`; different shares have different names."""
    return repr(float(share)).removesuffix(".0")


def on_validation(metric: str) -> str:
    """What rows of metrics call a metric on the validation samples."""
    return f"validation_{metric}"


@dataclass(frozen=True, repr=False)
class BestModel:
    """The model of the round that was best on the validation samples."""

    round: int
    metric: str
    """The metric that it was chosen by, such as `validation_accuracy`."""

    value: float
    """Its value, on all validation samples."""

    state_dict: Mapping[str, Tensor]
    """For `module.load_state_dict`."""

    row: Row
    """The line of metrics of the round; without the prefix `validation_`, metrics are those on the test samples."""

    def __repr__(self) -> str:
        return f"BestModel(round={self.round}, {self.metric}={self.value:.4f})"

    def summary(self) -> Row:
        """What `--json` prints: the metric and its value, and the line of metrics of the round."""
        return {"metric": self.metric, "value": self.value, **self.row}


@dataclass(frozen=True, repr=False)
class Result(NotebookDisplay):
    """The history and the final model of one run.

    `history` is a list of rows, one for every evaluated round; `pandas.DataFrame(result.history)` is a table of them.
    With `eval.subset` they are on some of the samples; scores of the run, and the row of the best model, are on all.
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

    training: Training = "federated"
    """Whether clients train together, each alone, or on pooled data."""

    task: TaskFacts = CLASSIFICATION
    """What was learned, and the metric that the run is judged by."""

    run: Path | None = None
    stopped: str = ""
    """Why the run stopped before its last round; empty if it did not."""

    client_rows: Sequence[Row] = ()
    """Where single clients were evaluated, a row for each client and evaluation; `clients` has those of the last."""

    client_resamples: Sequence[Row] = ()
    recorded_sha256: str = ""
    """SHA-256 of the final weights as the run folder has it, where the weights themselves were not read."""

    final: Row = field(default_factory=dict)
    """With `eval.subset`, the metrics on all samples at the end of the run: of the `last` model, and of the `best`."""

    best_found: BestModel | None = None
    """The best model on validation samples; None where there are none. `best` is the same for everyday use."""

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _facts(self) -> dict[str, str]:
        """The most important numbers, as text."""
        return {
            "method": repr(self.experiment.method),
            "data": repr(self.experiment.data.name),
            self.metric: UNDEFINED if math.isnan(self.score) else f"{self.score:.4f}",
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
    def metric(self) -> str:
        """The name of the metric that the run is judged by: `eval.metric`, or the headline of the task."""
        return self.task.headline

    @property
    def score(self) -> float:
        """That metric on the test samples after the last round; NaN where it is not known."""
        return self._last(self.metric)

    @property
    def last_row(self) -> Row:
        """The row of the last evaluation; of a complete run, metrics are on all samples. Empty if there is none."""
        return {**(self.history[-1] if self.history else {}), **self.final.get("last", {})}

    @property
    def score_last(self) -> float:
        """Its mean over the last `eval.last` evaluations; with `eval.subset`, the score itself."""
        return self._mean_of_last(self.metric)

    @property
    def best(self) -> BestModel:
        """The model of the round that was best on the validation samples, the first of several.

        Raises:
            SpecError: The run had no validation samples, or the metric was never defined on them. Choosing on test
                samples would flatter the result.
        """
        if self.best_found is None and any(on_validation("loss") in row for row in self.history):
            needs = self.task.headline_info.needs
            reason = f" (it needs {needs})" if needs else ""
            advice = "choose another metric, eval.metric, or keep other"
            if all(row.get(on_validation("loss")) is None for row in self.history):
                reason, advice = " (the loss was never finite)", "correct the model or the"
            raise SpecError(
                f"result.best: {on_validation(self.metric)} had no value in any evaluation{reason}; {advice} "
                "validation samples"
            )
        if self.best_found is None:
            raise SpecError(
                "result.best: this run kept no validation samples, and choosing on test samples would flatter the "
                "result; run with data.validation, such as validation=0.1"
            )
        return self.best_found

    @property
    def clients(self) -> ClientScores:
        """The scores of single clients on their own held-out samples, after the last evaluation of them.

        Raises:
            SpecError: Single clients were never evaluated.
        """
        found = last_client_scores(self.client_rows, self.client_resamples, self.task)
        if found is None:
            raise SpecError("result.clients: single clients were not evaluated; run with per_client=1 and holdout=0.2")
        return found

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, between 0 and 1.

        Raises:
            AttributeError: The task has no accuracy.
        """
        self._check_accuracy()
        return self._last("accuracy")

    @property
    def accuracy_last(self) -> float:
        """Mean test accuracy of the last `eval.last` evaluations; with `eval.subset`, the accuracy itself.

        Raises:
            AttributeError: The task has no accuracy.
        """
        self._check_accuracy()
        return self._mean_of_last("accuracy")

    def _check_accuracy(self) -> None:
        if "accuracy" not in self.task.metrics:
            raise AttributeError(f"the task {self.task.name!r} has no accuracy; result.score is its {self.metric}")

    def _last(self, metric: str) -> float:
        value = self.last_row.get(metric)
        return float("nan") if value is None else float(value)

    def _mean_of_last(self, metric: str) -> float:
        rows = [self.last_row] if self.final else self.history  # never a mean over different samples
        known = [row[metric] for row in rows if row.get(metric) is not None]
        return mean_of_last(known, self.experiment.eval.averaged) if known else float("nan")

    @property
    def accuracy_classes(self) -> float | None:
        """The same on `eval.classes` alone; None without such classes."""
        mean = self._mean_of_last("accuracy_classes")
        return None if math.isnan(mean) else mean

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the final weights: the same for all runs of a spec, on every engine, resumed or not."""
        if self.recorded_sha256:
            return self.recorded_sha256
        from fedrelay.models.flat_layout import weights_sha256  # imports PyTorch, which summaries do without

        return weights_sha256(self.weights)

    def rounds_to(self, target: float) -> int | None:
        """The first evaluated round that is at least as good: at least this accuracy, or at most this error."""
        rounds, scores = [row["round"] for row in self.history], [row.get(self.metric) for row in self.history]
        return rounds_to_target(rounds, scores, target, higher_is_better=self.task.headline_info.higher_is_better)

    @property
    def has_real_times(self) -> bool:
        """Whether clients are real: then `seconds` say how long they took, and virtual time says nothing."""
        return self.experiment.data_at_nodes

    def costs_to(self, target: float) -> Row | None:
        """The costs up to the first evaluated round that is at least as good; None if there is none."""
        reached = self.rounds_to(target)
        row: Row = next((row for row in self.history if row["round"] == reached), {})
        more = (REAL_SECONDS,) if REAL_SECONDS in row else ()
        return {name: row.get(name) for name in (*COSTS, *more)} if row else None

    def rounds_to_targets(self, reference: float | None = None) -> dict[float, int | None]:
        """Rounds to each share of `eval.targets` of the reference; None for all where there is no reference."""
        settings = self.experiment.eval
        reference = reference or settings.reference or self.task.best_possible
        goals = target_scores(reference, settings.targets, higher_is_better=self.task.headline_info.higher_is_better)
        return {share: self.rounds_to(goals[share]) if goals else None for share in settings.targets}

    def _scores(self) -> dict[str, Any]:
        """The last value of every metric, and the mean of the last values of the headline, by name."""
        last = self.last_row
        if self.task == CLASSIFICATION:
            others = {name: last.get(name) for name in ("loss", "precision", "recall", "f1")}
            found = {"accuracy": self.accuracy, "accuracy_last": self.accuracy_last}
            return {**found, "accuracy_classes": self.accuracy_classes, **others}
        names = dict.fromkeys((self.metric, *self.task.metrics, "loss"))
        levels = {f"{self.metric}_last": None if math.isnan(self.score_last) else self.score_last}
        about = {"task": self.task.name, "metric": self.metric}
        classes = {} if self.accuracy_classes is None else {"accuracy_classes": self.accuracy_classes}
        return {**about, **levels, **classes, **{name: last.get(name) for name in names}}

    def load_into(self, module: nn.Module) -> nn.Module:
        """Put the trained weights into a module of the same architecture."""
        module.load_state_dict(dict(self.model))
        return module

    def summary(self) -> dict[str, Any]:
        """The run in one flat object, as `--json` prints it."""
        return {
            "method": self.experiment.method,
            "data": self.experiment.data.name,
            "seed": self.experiment.seed,
            "rounds": self.rounds,
            "complete": self.complete,
            "stopped": self.stopped or None,
            "best": None if self.best_found is None else self.best_found.summary(),
            **self._scores(),
            **({"clients": self.clients.summary()} if self.client_rows else {}),
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
