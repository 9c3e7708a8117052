"""What a tuning gives back: the choice for every method, the comparison with fresh seeds, and the recommendation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedrelay.experiment.method_catalogue import pools_data
from fedrelay.experiment.spec import Experiment
from fedrelay.runtime.comparison import ComparisonResult, MethodResults
from fedrelay.runtime.result import Result
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.tuning.score import COSTS, Metric, Rung, score_of_run
from fedrelay.tuning.settings import Objective, Tuning
from fedrelay.tuning.successive_halving import Choice, Trial
from fedrelay.tuning.tuned_methods import TunedMethod


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
    """A method in the comparison: the model that validation samples choose, measured on test samples."""

    name: str
    scores: tuple[float, ...]
    """The metric on the test samples, seed by seed."""

    costs: tuple[float | None, ...]
    """The cost until the target was reached, seed by seed; None where there is no target, or it was missed."""

    failed: int
    pooled: bool
    """Whether it trains on pooled data: a baseline, which is never recommended."""

    @property
    def score(self) -> float | None:
        return fmean(self.scores) if self.scores else None

    @property
    def cost(self) -> float | None:
        """The mean cost to the target; None if a seed missed it."""
        known = [cost for cost in self.costs if cost is not None]
        return fmean(known) if known and len(known) == len(self.costs) else None

    def values(self, objective: Objective) -> tuple[float, ...]:
        """What methods are compared by, seed by seed."""
        return self.scores if objective == "score" else tuple(cost for cost in self.costs if cost is not None)


@dataclass(frozen=True, repr=False)
class TuningResult:
    """The tuned methods, their comparison with fresh seeds, and which of them to use."""

    tuning: Tuning
    task: TaskFacts
    rungs: tuple[Rung, ...]
    methods: tuple[MethodTuning, ...]
    comparison: ComparisonResult
    out: Path

    @property
    def metric(self) -> Metric:
        """The metric on validation samples."""
        return Metric(f"validation_{self.task.headline}", self.task.headline_info.higher_is_better)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """All methods that were compared, the best first; those that failed and pooled baselines come last."""
        return tuple(sorted((self._standing(each) for each in self.comparison.methods), key=self._rank))

    @property
    def recommended(self) -> Standing | None:
        """The best method; None if none finished every seed."""
        best = self.standings[0]
        return None if best.failed or best.pooled or not best.scores else best

    def __getitem__(self, name: str) -> MethodTuning:
        for each in self.methods:
            if each.name == name:
                return each
        raise KeyError(f"no method {name!r}; the tuning has {', '.join(each.name for each in self.methods)}")

    def __repr__(self) -> str:
        best = self.recommended
        return f"TuningResult(recommended={best.name if best else None!r}, methods={len(self.methods)})"

    def lead_over(self, other: Standing) -> tuple[float, float] | None:
        """How much better the recommended method is, seed by seed: mean and standard error.

        None if a seed has no number. With a single seed the standard error is not known: infinite.
        """
        objective, best = self.tuning.tune.objective, self.recommended
        if best is None:
            return None
        ours, theirs = best.values(objective), other.values(objective)
        if len(ours) != len(self.tuning.seeds) or len(theirs) != len(ours):
            return None
        sign = 1 if objective == "score" and self.metric.higher_is_better else -1
        gaps = [sign * (one - two) for one, two in zip(ours, theirs, strict=True)]
        return fmean(gaps), stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.inf

    def is_clear(self, other: Standing) -> bool:
        """Whether the lead over another method is more than twice its standard error, or the other has no number."""
        lead = self.lead_over(other)
        return lead is None or lead[0] > 2 * lead[1]

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
        return tuple(warning for each in self.methods for warning in self._warnings(each))

    def _warnings(self, each: MethodTuning) -> Iterator[str]:
        if each.failed:
            yield f"{each.name}: no trial came to its end ({each.choice.best.score.problem}); try a lower --lr"
            return
        if each.choice.at_edge:
            best = f"{each.choice.best.point.lr:g}"
            yield f"{each.name}: the best learning rate, {best}, is still at the edge; try --lr {best}"
        results = self.comparison[each.name].results
        if self._has_limits and results and all(result.rounds == self.tuning.rounds for result in results):
            yield f"{each.name}: all {self.tuning.rounds} rounds are within the budget; more --rounds may help"

    @property
    def _has_limits(self) -> bool:
        stop = self.tuning.stop
        return any(limit is not None for limit in (stop.max_bytes, stop.max_updates, stop.max_hours))

    def _standing(self, method: MethodResults) -> Standing:
        results = [result for result in method.results if result.best_found is not None]
        return Standing(
            method.name,
            tuple(float(result.best.row[self.task.headline]) for result in results),
            tuple(self._cost(result) for result in results),
            len(method.failed),
            pools_data(method.method),
        )

    def _cost(self, result: Result) -> float | None:
        tune = self.tuning.tune
        return score_of_run(result.history, self.metric, tune.objective, self.tuning.stop.target).cost

    def _rank(self, each: Standing) -> tuple[bool, bool, bool, float, float]:
        sign = -1.0 if self.metric.higher_is_better else 1.0
        missed = self.tuning.tune.objective in COSTS and each.cost is None
        score = sign * each.score if each.score is not None else math.inf
        return bool(each.failed) or each.score is None, each.pooled, missed, each.cost or 0.0, score


def spec_file(out: Path, method: MethodTuning) -> Path:
    """Where the best settings of a method are, for `fedrelay run`."""
    return out / "best" / f"{method.method.entry.folder}.yaml"
