"""Several methods, several seeds, one table.

A comparison folder holds `comparison.yaml` and one run folder for every method and seed: `METHOD/seed-N`. Running it
again continues whatever is not complete, so an interrupted comparison loses nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path

import yaml
from torch import nn

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.errors import DivergedError, FedRelayError, NoUpdateAcceptedError, RunFolderError, SpecError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.method import build_method
from fedrelay.experiment.prepare import check_preparable
from fedrelay.experiment.spec import Comparison, ComparisonEntry, Experiment, load_file, validate
from fedrelay.files import make_folder, write_atomically
from fedrelay.metrics.curves import mean_std, target_scores
from fedrelay.metrics.paired_differences import DifferenceToBaseline, differences_to_baseline
from fedrelay.runtime.callback import Callbacks
from fedrelay.runtime.result import COSTS, UNDEFINED, Result, Row, html_table
from fedrelay.runtime.round_loop import resume_run, run_experiment
from fedrelay.tasks.base import Task
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts

SPEC = "comparison.yaml"


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
        return {name: _mean([costs[name] for costs in found]) for name in COSTS}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean_std(known)[0] if len(known) == len(values) else None


@dataclass(frozen=True, repr=False)
class ComparisonResult:
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
        return (*weights, *self._undefined_scores())

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

    def _repr_html_(self) -> str:
        rows = [[each.name, each._score(), str(len(each.results)), str(len(each.failed))] for each in self.methods]
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return html_table(["method", self.task.headline, "runs", "failed"], rows) + notes

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
            if entry.method == "centralized" and entry.results:
                found = entry.mean_std(lambda result: result.score_last)
                return None if found is None else found[0]
        return self.task.best_possible

    def __getitem__(self, name: str) -> MethodResults:
        for entry in self.methods:
            if entry.name == name:
                return entry
        raise KeyError(f"no method {name!r}; the comparison has {', '.join(each.name for each in self.methods)}")


def run_comparison(
    comparison: Comparison,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
) -> ComparisonResult:
    """Run all runs of a comparison that are not complete yet."""
    runs = experiments(comparison)
    if comparison.out is not None:
        open_folder(comparison.out, comparison, lambda: check_runs([run for _, run in runs], federation, module, task))
    methods = {entry.name: MethodResults(entry.name, entry.method, ()) for entry in comparison.methods}
    for entry, experiment in runs:
        sofar = methods[entry.name]
        try:
            result = run_entry(entry, experiment, comparison.out, federation, module, task, callbacks)
            sofar = replace(sofar, results=(*sofar.results, result))
        except DivergedError as error:
            sofar = replace(sofar, diverged=(*sofar.diverged, f"seed {experiment.seed}: {error}"))
        except NoUpdateAcceptedError as error:
            sofar = replace(sofar, untrained=(*sofar.untrained, f"seed {experiment.seed}: {error}"))
        except FedRelayError as error:
            raise type(error)(f"{entry.name}, seed {experiment.seed}: {error}") from error.__cause__
        methods[entry.name] = sofar
    return ComparisonResult(comparison, tuple(methods.values()), isinstance(module, nn.Module))


def run_folder(out: Path, entry: ComparisonEntry, seed: int) -> Path:
    """The folder of a run of a comparison."""
    return out / entry.folder / f"seed-{seed}"


def load_comparison(folder: Path) -> Comparison:
    """Read the comparison of a folder."""
    try:
        return validate(Comparison, {**load_file(folder / SPEC), "out": folder})
    except SpecError as error:
        raise RunFolderError(f"{folder}: {SPEC} is damaged: {error}") from None


def open_folder(folder: Path, comparison: Comparison, check_preparable: Callable[[], object] = lambda: None) -> None:
    """Open a new folder, or one that holds the same comparison.

    Args:
        folder: Where the comparison is.
        comparison: What it compares.
        check_preparable: Called for a new folder before anything is written, so that errors show.

    Raises:
        RunFolderError: The folder holds something else, or cannot be created.
    """
    if not folder.exists():
        check_preparable()
    try:
        make_folder(folder)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be created ({error.strerror})") from None
    if not occupied:
        spec = comparison.model_dump(mode="json", exclude={"out"})
        write_atomically(folder / SPEC, yaml.safe_dump(spec, sort_keys=False).encode())
    elif not (folder / SPEC).is_file() or load_comparison(folder) != comparison:
        raise RunFolderError(
            f"{folder}: is not empty and holds something else; 'fedrelay resume {folder}' continues a comparison, "
            "a new one needs another --out"
        )


def check_runs(
    runs: Sequence[Experiment],
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
) -> None:
    """Check the first run and, with its seed, all runs that profile clients and one attack of each method."""
    first, *others = runs
    alike = [other for other in others if other.seed == first.seed]
    attacked = {other.method: other for other in alike if other.attack.name != "none"}
    profiling = [other for other in alike if build_method(other).profiles_clients]
    for run in (first, *profiling, *(other for other in attacked.values() if other not in profiling)):
        check_preparable(run, federation=federation, module=module, task=task)


def run_entry(
    entry: ComparisonEntry,
    experiment: Experiment,
    out: Path | None,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
) -> Result:
    """Run or continue one run of a comparison in its folder."""
    run = partial(run_experiment, federation=federation, module=module, task=task, callbacks=callbacks)
    if out is None:
        return run(experiment)
    path = run_folder(out, entry, experiment.seed)
    if (path / "run.json").is_file():
        return resume_run(path, federation=federation, module=module, task=task, callbacks=callbacks)
    return run(experiment.model_copy(update={"out": path}))
