"""Choosing a round: the metric that rounds are compared by, the best model, and the rules that stop a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.experiment.spec import StopSettings
from fedrelay.runtime.callback import CurrentModel, RoundContext
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import on_validation
from fedrelay.runtime.run_state import BestSoFar, RunState
from fedrelay.tasks.task_facts import TaskFacts


@dataclass(frozen=True)
class SelectionMetric:
    """The metric that decides which round is best."""

    name: str
    """Its name in a row of metrics."""

    higher_is_better: bool
    loss: str = "loss"
    """The name of the loss on the same samples."""

    def is_undefined(self, row: Row) -> bool:
        """Whether the samples do not determine the metric; it is not if the model's loss is not finite either."""
        return row.get(self.name) is None and row.get(self.loss) is not None

    def is_better(self, value: float | None, than: float | None, by: float = 0.0) -> bool:
        """Whether a value is better than another one by more than `by`; any value is better than none."""
        if value is None or than is None:
            return value is not None
        return value > than + by if self.higher_is_better else value < than - by

    def is_reached(self, target: float, value: float) -> bool:
        """Whether a value is as good as a target."""
        return not self.is_better(target, value)


def validation_metric(task: TaskFacts) -> SelectionMetric:
    """The headline metric of a task on validation samples."""
    higher = task.headline_info.higher_is_better
    return SelectionMetric(on_validation(task.headline), higher, on_validation("loss"))


def selection_metric(prepared: PreparedExperiment) -> SelectionMetric:
    """The metric that the run is judged by, on validation samples where there are any."""
    task = prepared.task_facts
    if prepared.has_validation:
        return validation_metric(task)
    return SelectionMetric(task.headline, task.headline_info.higher_is_better)


class Limit(NamedTuple):
    """A limit of `stop`, and what a run has spent of it."""

    name: str
    most: float
    spent: float
    what: str

    def is_reached(self, share: float = 1.0) -> bool:
        """Whether a share of it was spent."""
        return self.spent >= share * self.most

    def __str__(self) -> str:
        return f"stop.{self.name}: {_number(self.spent)} {self.what}, the limit is {_number(self.most)}"


def planned_limits(settings: StopSettings, costs: Row) -> tuple[Limit, ...]:
    """The limits on costs that follow from the plans of a run, so from its records; real time does not.

    Args:
        settings: The limits.
        costs: What the run has cost so far, as in a row of metrics.
    """
    hours = costs["virtual_seconds"] / 3600
    known = (
        ("max_bytes", settings.max_bytes, costs["bytes"], "bytes were sent"),
        ("max_updates", settings.max_updates, costs["client_updates"], "client updates were done"),
        ("max_hours", settings.max_hours, hours, "hours of virtual time have passed"),
    )
    return tuple(Limit(name, most, spent, what) for name, most, spent, what in known if most is not None)


@dataclass(frozen=True)
class StopRules:
    """When a run stops before its last round. Everything but real time follows from the records of the run."""

    settings: StopSettings
    metric: SelectionMetric

    def limit_reached(self, costs: Row, seconds: float) -> str:
        """Why the run has cost enough; empty if it has not.

        Args:
            costs: What the run has cost so far, as in a row of metrics.
            seconds: Real seconds so far.
        """
        most = self.settings.max_wall
        wall = [] if most is None else [Limit("max_wall", most, seconds, "seconds have passed")]
        return next((str(limit) for limit in (*planned_limits(self.settings, costs), *wall) if limit.is_reached()), "")

    def target_reached(self, history: Sequence[Row]) -> str:
        """Why the last evaluation is good enough; empty if it is not."""
        target, value = self.settings.target, history[-1].get(self.metric.name)
        if target is None or value is None or not self.metric.is_reached(target, value):
            return ""
        return f"stop.target: {self.metric.name} is {value:.4g}, the target is {target:g}"

    def patience_over(self, history: Sequence[Row]) -> str:
        """Why there is no use in going on; empty if there is."""
        patience, least = self.settings.patience, self.settings.min_gain
        if patience is None or self.evaluations_without_gain(history) < patience:
            return ""
        gain = f"gain of more than {least:g}" if least else "gain"
        return f"stop.patience: no {gain} in {self.metric.name} in {patience} evaluations"

    def evaluations_without_gain(self, history: Sequence[Row]) -> int:
        """The number of evaluations since the last one that was better than all before it by more than `min_gain`.

        Evaluations in which the metric is undefined do not count.
        """
        best, without = None, 0
        for value in (row.get(self.metric.name) for row in history if not self.metric.is_undefined(row)):
            if self.metric.is_better(value, best, self.settings.min_gain):
                best, without = value, 0
            else:
                without += 1
        return without


class BestAndStop:
    """Keeps the best model and stops the run, both by what is recorded of its rounds."""

    def __init__(self, prepared: PreparedExperiment) -> None:
        self.prepared, self.experiment = prepared, prepared.experiment
        self.metric = selection_metric(prepared)
        self.rules = StopRules(self.experiment.stop, self.metric)

    def after_round(self, state: RunState, context: RoundContext, history: Sequence[Row], enough: str) -> RunState:
        """The state with the best model so far, and why the run stops, if it does.

        Args:
            state: The state after the round.
            context: The round, with its row where it was evaluated.
            history: All rows so far.
            enough: The limit that the run has reached, if any.
        """
        if context.row is not None:
            enough = enough or self.rules.target_reached(history) or self.rules.patience_over(history)
            if state.round % self.experiment.eval.every == 0:  # other evaluations are not part of a longer run
                state = replace(state, best=self.better(state.best, context.row, context.model))
        return replace(state, stopped=enough if state.round < self.experiment.rounds else "")

    def better(self, best: BestSoFar | None, row: Row, model: CurrentModel) -> BestSoFar | None:
        """The best model so far, or the one of this row if it is better; None without validation samples."""
        value = row.get(self.metric.name)
        if not self.prepared.has_validation or not self.metric.is_better(value, None if best is None else best.value):
            return best
        return BestSoFar(row["round"], self.metric.name, row[self.metric.name], model.weights)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
