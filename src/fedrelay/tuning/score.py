"""What a trial is judged by: rows of metrics of its runs, up to a rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedrelay.experiment.spec import StopSettings
from fedrelay.runtime.best_and_stop import SelectionMetric, planned_limits
from fedrelay.runtime.record_lines import Row
from fedrelay.tuning.settings import Objective

COSTS: Mapping[Objective, tuple[str, float]] = {
    "rounds": ("round", 1),
    "updates": ("client_updates", 1),
    "bytes": ("bytes", 1),
    "hours": ("virtual_seconds", 3600),
}
"""Objectives that are costs → their name in a row, and how much of it is one."""


@dataclass(frozen=True)
class Rung:
    """A share of the budget: of the rounds, and of every limit in `stop`.

    A trial at a rung is the run of full length up to there, not a shorter run: schedules and groups that grow depend
    on the last round.
    """

    share: float
    rounds: int
    stop: StopSettings

    def reached(self, row: Row) -> bool:
        """Whether a row of metrics is at the rung or beyond it."""
        spent = any(limit.is_reached(self.share) for limit in planned_limits(self.stop, row))
        return spent or bool(row["round"] >= self.share * self.rounds)

    def rows(self, history: Sequence[Row]) -> list[Row]:
        """The rows of a run up to the rung, also if the run is further."""
        end = next((place for place, row in enumerate(history) if self.reached(row)), len(history))
        return list(history[: end + 1])


def rungs(count: int, rounds: int, stop: StopSettings) -> tuple[Rung, ...]:
    """Rungs at 1, 1/2, 1/4, … of the budget, the lowest first."""
    return tuple(Rung(0.5**place, rounds, stop) for place in reversed(range(count)))


@dataclass(frozen=True)
class TrialScore:
    """How good a trial is at a rung, as means over the seeds."""

    value: float | None
    """The best value of the metric so far; None if a run failed."""

    mean: float = 0.0
    """The mean of the metric over all evaluations: of two trials with the same value, the one that learned faster."""

    cost: float | None = None
    """The cost until the target was reached; None if a run has not reached it, or there is none."""

    problem: str = ""
    """Why a run failed."""

    advice: str = "try a lower --lr"
    """What to do about it."""

    def rank(self, higher_is_better: bool) -> tuple[bool, bool, float, float, float]:
        """A key for sorting, the best first: reached the target, cheaper, better metric, faster."""
        sign = -1.0 if higher_is_better else 1.0
        value, cost = (0.0 if each is None else each for each in (self.value, self.cost))
        return self.value is None, self.cost is None, cost, sign * value, sign * self.mean


def score_of_run(
    rows: Sequence[Row], metric: SelectionMetric, objective: Objective, target: float | None
) -> TrialScore:
    """The score of one run from its rows."""
    values = [(row, row[metric.name]) for row in rows if row.get(metric.name) is not None]
    if not values:
        if any(metric.is_undefined(row) for row in rows):
            return TrialScore(None, problem=f"{metric.name} is undefined", advice="choose another metric (eval.metric)")
        return TrialScore(None, problem="no evaluation on validation samples")
    found = [value for _, value in values]
    best = max(found) if metric.higher_is_better else min(found)
    cost = None
    if objective != "score" and target is not None:
        name, unit = COSTS[objective]
        reached = (row for row, value in values if metric.is_reached(target, value))
        cost = next((row[name] / unit for row in reached), None)
    return TrialScore(best, fmean(found), cost)


def mean_score(scores: Sequence[TrialScore]) -> TrialScore:
    """The mean over seeds; a trial with a failed run has failed, and one that missed the target once has missed it."""
    if failed := next((score for score in scores if score.value is None), None):
        return failed
    values = [score.value for score in scores if score.value is not None]
    costs = [score.cost for score in scores if score.cost is not None]
    reached = fmean(costs) if len(costs) == len(scores) else None
    return TrialScore(fmean(values), fmean(score.mean for score in scores), reached)
