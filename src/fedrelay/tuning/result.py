"""What a tuning gives back: the choice for every method, the comparison with fresh seeds, and the recommendation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from fedrelay.experiment.spec import Experiment
from fedrelay.metrics.paired_differences import PairedDifference, more_than_chance
from fedrelay.notebook_display import NotebookDisplay
from fedrelay.runtime.best_and_stop import SelectionMetric, planned_limits, validation_metric
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
from fedrelay.runtime.result import Result
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.tuning.score import COSTS, Rung, score_of_run
from fedrelay.tuning.settings import Tuning
from fedrelay.tuning.successive_halving import Choice, Trial
from fedrelay.tuning.tuned_methods import TunedMethod

OVERSPENT = 1.05
"""From this share of a limit on, a method has spent more than others."""


@dataclass(frozen=True)
class MethodTuning:
    """A method, its trials, and the experiment with the best settings."""

    method: TunedMethod
    choice: Choice
    experiment: Experiment

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def settings(self) -> dict[str, Any]:
        """The chosen settings by their place in a spec."""
        return self.method.space.settings(self.choice.best.point)

    @property
    def failed(self) -> bool:
        """Whether every trial failed, so that nothing could be chosen."""
        return self.choice.best.score.value is None

    @property
    def trial_count(self) -> str:
        """How many trials there were; those beyond the edge of the learning rates apart: `12 + 1`."""
        more = sum(trial.extension for trial in self.choice.trials)
        planned = len(self.choice.trials) - more
        return f"{planned} + {more}" if more else f"{planned}"

    def outcome(self, trial: Trial, rungs: int) -> str:
        """How far a trial came, in a few words."""
        if trial.score.value is None:
            return "failed"
        if trial == self.choice.best:
            return "best"
        if trial.extension:
            return "extension"
        return "finalist" if len(trial.scores) == rungs else f"stopped at rung {len(trial.scores)}"


@dataclass(frozen=True)
class Standing:
    """A method in the comparison, by the model of each run that is best on its validation samples."""

    name: str
    validation: tuple[float | None, ...]
    """The metric on the validation samples, seed by seed: methods are ranked by it. None: the run has no number."""

    scores: tuple[float | None, ...]
    """The metric of the same models on the test samples."""

    costs: tuple[float | None, ...]
    """The cost until the target was reached, seed by seed; None where there is no target, or it was missed."""

    pooled: bool
    """Whether it trains on pooled data: a baseline, which is never recommended."""

    @property
    def missing(self) -> int:
        """How many seeds have no number."""
        return sum(None in pair for pair in zip(self.validation, self.scores, strict=True))

    @property
    def known_scores(self) -> tuple[float, ...]:
        """The metric on the test samples of all seeds that have one."""
        return tuple(score for score in self.scores if score is not None)

    @property
    def score(self) -> float | None:
        """The mean on the test samples."""
        return _mean(self.known_scores)

    @property
    def validation_score(self) -> float | None:
        """The mean on the validation samples."""
        return _mean([value for value in self.validation if value is not None])

    @property
    def cost(self) -> float | None:
        """The mean cost to the target; None if a seed missed it."""
        known = [cost for cost in self.costs if cost is not None]
        return _mean(known) if len(known) == len(self.costs) else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


Certainty = Literal["clear", "close", "unknown"]
"""Whether a lead is more than chance, may be chance, or cannot be measured."""


@dataclass(frozen=True, repr=False)
class TuningResult(NotebookDisplay):
    """The tuned methods, their comparison with fresh seeds, and which of them to use."""

    tuning: Tuning
    task: TaskFacts
    rungs: tuple[Rung, ...]
    methods: tuple[MethodTuning, ...]
    comparison: ComparisonResult
    out: Path

    @property
    def metric(self) -> SelectionMetric:
        """The metric on validation samples."""
        return validation_metric(self.task)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """All methods that were compared, the best first; those without a number and pooled baselines come last."""
        return tuple(sorted((self._standing(each) for each in self.comparison.methods), key=self._rank))

    @property
    def recommended(self) -> Standing | None:
        """The method that is best on validation samples; None if none has a number for every seed."""
        best = self.standings[0]
        return None if best.missing or best.pooled else best

    @property
    def rivals(self) -> tuple[Standing, ...]:
        """The other methods that might have been recommended, the best first."""
        return tuple(each for each in self.standings[1:] if not each.pooled and not each.missing)

    def __getitem__(self, name: str) -> MethodTuning:
        for each in self.methods:
            if each.name == name:
                return each
        raise KeyError(f"no method {name!r}; the tuning has {', '.join(each.name for each in self.methods)}")

    def __repr__(self) -> str:
        best = self.recommended
        return f"TuningResult(recommended={best.name if best else None!r}, methods={len(self.methods)})"

    def lead_over(self, other: Standing) -> PairedDifference | None:
        """How much better the recommended method is, seed by seed: on test samples, or in the cost to the target.

        Test samples had no say in the recommendation, so this lead is no larger for being that of the winner; it may
        be negative. None if a seed has no number.
        """
        objective, best = self.tuning.tune.objective, self.recommended
        if best is None:
            return None
        ours, theirs = (each.scores if objective == "score" else each.costs for each in (best, other))
        sign = 1 if objective == "score" and self.metric.higher_is_better else -1
        gaps = [
            sign * (one - two) for one, two in zip(ours, theirs, strict=True) if one is not None and two is not None
        ]
        return PairedDifference(tuple(gaps)) if len(gaps) == len(self.tuning.seeds) else None

    def certainty(self, other: Standing) -> Certainty:
        """Whether the lead over another method is more than chance, by t-tests of the leads over all rivals."""
        measured = [(each.name, lead) for each in self.rivals if (lead := self.lead_over(each)) is not None]
        if len(self.tuning.seeds) == 1 or other.name not in [name for name, _ in measured]:
            return "unknown"
        tested = zip(measured, more_than_chance([lead for _, lead in measured]), strict=True)
        clear = {name for (name, lead), sure in tested if sure and lead.mean > 0}
        return "clear" if other.name in clear else "close"

    @property
    def extensions(self) -> tuple[str, ...]:
        """Which learning rates were tried beyond those of the grid, and what became of them."""
        found = []
        for each in self.methods:
            if rates := [f"{trial.point.lr:g}" for trial in each.choice.trials if trial.extension]:
                best, were = f"{each.choice.best.point.lr:g}", "was" if len(rates) == 1 else "were"
                edge = f"the best learning rate was at the edge, so {', '.join(rates)} {were} tried too"
                found.append(f"{each.name}: {edge}; {best} is best")
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What may be wrong with the choices."""
        return (*(each for method in self.methods for each in self._warnings(method)), *self.comparison.unequal_work())

    def _warnings(self, each: MethodTuning) -> Iterator[str]:
        if each.failed:
            failed = each.choice.best.score
            yield f"{each.name}: no trial came to its end ({failed.problem}); {failed.advice}"
            return
        if each.choice.at_edge:
            best = f"{each.choice.best.point.lr:g}"
            yield f"{each.name}: the best learning rate, {best}, is at the edge; try a grid around it: --lr {best}"
        results = self.comparison[each.name].results
        limits = [limit for run in results for limit in planned_limits(self.tuning.stop, run.history[-1])]
        if overspent := [limit for limit in limits if limit.is_reached(OVERSPENT)]:
            worst = max(overspent, key=lambda limit: limit.spent / limit.most)
            yield f"{each.name}: over the budget, as a run ends after the round that reaches a limit; {worst}"
        did_all = all(run.rounds == self.tuning.rounds for run in results)
        if limits and did_all and not any(limit.is_reached() for limit in limits):
            yield f"{each.name}: all {self.tuning.rounds} rounds are within the budget; more --rounds may help"

    def _standing(self, method: MethodResults) -> Standing:
        found = {result.experiment.seed: result for result in method.results if result.best_found is not None}
        results = [found.get(seed) for seed in self.tuning.seeds]
        rows = [{} if result is None else result.best.row for result in results]
        return Standing(
            method.name,
            tuple(row.get(self.metric.name) for row in rows),
            tuple(row.get(self.task.headline) for row in rows),
            tuple(None if result is None else self._cost(result) for result in results),
            method.training == "pooled",
        )

    def _cost(self, result: Result) -> float | None:
        tune = self.tuning.tune
        return score_of_run(result.history, self.metric, tune.objective, self.tuning.stop.target).cost

    def _rank(self, each: Standing) -> tuple[bool, bool, bool, float, float]:
        sign = -1.0 if self.metric.higher_is_better else 1.0
        missed = self.tuning.tune.objective in COSTS and each.cost is None
        value = sign * each.validation_score if each.validation_score is not None else math.inf
        return bool(each.missing), each.pooled, missed, each.cost or 0.0, value


def spec_file(out: Path, method: MethodTuning) -> Path:
    """Where the best settings of a method are, for `fedrelay run`."""
    return out / "best" / f"{method.method.entry.folder}.yaml"
