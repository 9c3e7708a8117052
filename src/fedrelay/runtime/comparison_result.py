"""What a comparison gives back: several methods, several seeds. Reading it needs no PyTorch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.method_catalogue import training_of
from fedrelay.experiment.sections import Training
from fedrelay.experiment.spec import Comparison, ComparisonEntry, StopSettings, load_file, validate
from fedrelay.metrics.curves import mean_std, target_scores
from fedrelay.metrics.paired_differences import DifferenceToBaseline, differences_to_baseline
from fedrelay.notebook_display import NotebookDisplay
from fedrelay.runtime.client_comparison import ClientComparison
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import UNDEFINED, Result
from fedrelay.runtime.spec_files import COMPARISON_SPEC
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts


@dataclass(frozen=True, repr=False)
class MethodResults:
    """The runs of one method of a comparison; `diverged` and `untrained` say why runs have no result."""

    name: str
    method: str
    results: tuple[Result, ...]
    diverged: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        metric = (self.results[0].task if self.results else CLASSIFICATION).headline
        return f"MethodResults({self.name!r}: {metric} {self._score()} over {len(self.results)} seeds{failed})"

    def _score(self) -> str:
        found = self.mean_std(lambda result: result.score_last)
        if found is None:
            return UNDEFINED if self.results else "unknown"
        return f"{found[0]:.4f} ± {found[1]:.4f}"

    @property
    def training(self) -> Training:
        """Whether clients train together, each alone, or on pooled data."""
        return next((result.training for result in self.results), training_of(self.method))

    @property
    def failed(self) -> tuple[str, ...]:
        """The reasons why runs have no result."""
        return self.diverged + self.untrained

    @property
    def fault_events(self) -> Counter[str]:
        """What went wrong in all runs that have a result, and how often."""
        return sum((Counter(result.fault_events) for result in self.results), Counter())

    @property
    def scores(self) -> dict[int, float]:
        """Seed → the mean score of the last evaluations; NaN where it is not known."""
        return {result.experiment.seed: result.score_last for result in self.results}

    def mean_std(self, value: Callable[[Result], float]) -> tuple[float, float] | None:
        """Mean and standard deviation over the runs that have a result in which the value is defined."""
        known = [found for found in map(value, self.results) if not math.isnan(found)]
        return mean_std(known) if known else None

    def rounds_to(self, target: float) -> float | None:
        """Mean number of rounds to a target; None if any run never reached it."""
        costs = self.costs_to(target)
        return None if costs is None else costs["round"]

    def costs_to(self, target: float) -> Row | None:
        """Mean costs to a target; None if any run never reached it, and for costs that a run does not know."""
        reached = [result.costs_to(target) for result in self.results]
        found = [costs for costs in reached if costs is not None]
        if not found or len(found) < len(reached):
            return None
        return {name: _mean([costs.get(name) for costs in found]) for name in found[0]}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean_std(known)[0] if len(known) == len(values) else None


SAME_WORK = 1.2
"""Client updates of two methods whose ratio is at most this are called the same."""


def _ends_by_other_rules(stop: StopSettings) -> bool:
    """Whether a run may end by something else than rounds or client updates, so that work differs as it should."""
    rules = (stop.max_bytes, stop.max_hours, stop.max_wall, stop.target, stop.patience)
    return any(rule is not None for rule in rules)


@dataclass(frozen=True, repr=False)
class ComparisonResult(NotebookDisplay):
    """All runs of a comparison."""

    comparison: Comparison
    methods: tuple[MethodResults, ...]
    same_weights: bool = False
    """Whether the runs of all seeds start with the same weights, those of a module of the user's own."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the numbers."""
        several = any(len(method.results) > 1 for method in self.methods)
        weights = ("same initial weights for all seeds",) if self.same_weights and several else ()
        return (*weights, *self.unequal_work(), *self._subsets(), *self._undefined_scores())

    def unequal_work(self) -> Iterator[str]:
        """The client updates of methods, where some have more: with few clients a group may be as large as all."""
        federated = [method for method in self.methods if method.training == "federated" and method.results]
        runs = [run for method in federated for run in method.results]
        rules = [run.experiment.stop for run in runs]
        if not runs or not all(run.complete for run in runs) or any(map(_ends_by_other_rules, rules)):
            return
        work = {each.name: mean_std([float(run.client_updates) for run in each.results])[0] for each in federated}
        least, most = min(work, key=work.__getitem__), max(work, key=work.__getitem__)
        if work[most] > SAME_WORK * work[least]:
            ends = " and ".join(f"{work[name]:,.0f} ({name})" for name in (least, most))
            limited = all(rule.max_updates is not None for rule in rules)
            advice = "" if limited else "; stop.max_updates sets a common limit"
            yield f"not the same work: between {ends} client updates{advice}"

    def _subsets(self) -> Iterator[str]:
        """What is not on all samples."""
        subsets = {result.experiment.eval.subset for method in self.methods for result in method.results} - {None}
        if subsets:
            counts = ", ".join(f"{subset:,}" for subset in sorted(filter(None, subsets)))
            yield f"with eval.subset ({counts}) curves and rounds to targets are on that many samples, scores on all"

    def _undefined_scores(self) -> Iterator[str]:
        """The runs in which the headline was undefined in every evaluation."""
        results = [result for method in self.methods for result in method.results]
        undefined = [result for result in results if math.isnan(result.score_last)]
        needs = self.task.headline_info.needs
        if undefined:
            why = f": it needs {needs}" if needs else ""
            if all(row.get("loss") is None for result in undefined for row in result.history):
                why = ": the loss is not finite"
            yield f"{self.task.label} is undefined in {len(undefined)} of {len(results)} runs{why}"

    def __repr__(self) -> str:
        return f"ComparisonResult({', '.join([*map(repr, self.methods), *self.notes])})"

    @property
    def task(self) -> TaskFacts:
        """What was learned, and the metric that methods are compared by."""
        return next((result.task for entry in self.methods for result in entry.results), CLASSIFICATION)

    @property
    def baseline(self) -> MethodResults:
        """The method that all others are compared with: `baseline` of the comparison, else the first."""
        return self.methods[0] if self.comparison.baseline is None else self[self.comparison.baseline]

    @property
    def differences(self) -> dict[str, DifferenceToBaseline]:
        """How much every other method differs from the baseline, seed by seed, in the mean of the last evaluations."""
        baseline = self.baseline
        return differences_to_baseline(
            baseline.scores, {each.name: each.scores for each in self.methods if each.name != baseline.name}
        )

    @cached_property
    def clients(self) -> ClientComparison | None:
        """Every client with every method, beside training alone; None if single clients were not evaluated."""
        found = {
            entry.name: {each.experiment.seed: each.clients for each in entry.results if each.client_rows}
            for entry in self.methods
        }
        alone = next((entry.name for entry in self.methods if entry.training == "alone" and found[entry.name]), None)
        scores = {name: each for name, each in found.items() if each}
        return ClientComparison(self.task, scores, alone) if scores else None

    @property
    def targets(self) -> dict[float, float]:
        """Share → target, for every share of `eval.targets`; empty where there is no reference."""
        better = self.task.headline_info.higher_is_better
        return target_scores(self.reference, self.comparison.eval.targets, higher_is_better=better)

    @property
    def reference(self) -> float | None:
        """The reference of targets: `eval.reference`, else the score of centralised training if compared.

        Otherwise 1 for shares such as accuracy, and None for other metrics, which have no best value.
        """
        if self.comparison.eval.reference is not None:
            return self.comparison.eval.reference
        for entry in self.methods:
            if entry.training == "pooled" and entry.results:
                found = entry.mean_std(lambda result: result.score_last)
                return None if found is None else found[0]
        return self.task.best_possible

    def __getitem__(self, name: str) -> MethodResults:
        for entry in self.methods:
            if entry.name == name:
                return entry
        raise KeyError(f"no method {name!r}; the comparison has {', '.join(each.name for each in self.methods)}")


def run_folder(out: Path, entry: ComparisonEntry, seed: int) -> Path:
    """The folder of a run of a comparison."""
    return out / entry.folder / f"seed-{seed}"


def load_comparison(folder: Path) -> Comparison:
    """Read the comparison of a folder."""
    try:
        return validate(Comparison, {**load_file(folder / COMPARISON_SPEC), "out": folder})
    except SpecError as error:
        raise RunFolderError(f"{folder}: {COMPARISON_SPEC} is damaged: {error}") from None
