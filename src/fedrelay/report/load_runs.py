"""Reads run folders and comparisons for reports, in whatever state they are.

Nothing is locked or changed, so a run can be read while it is running.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fedrelay.cost.ledger import KINDS
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.spec import Comparison, Experiment
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults, load_comparison
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import REAL_SECONDS, Result
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import FAILURES, Failure, RunStatus, StatusName
from fedrelay.runtime.spec_files import COMPARISON_SPEC

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RunView:
    """One run as its folder shows it now."""

    records: RunFolderReader
    experiment: Experiment
    state: StatusName
    reason: str = ""
    """Why the run failed; empty if it did not."""

    stopped: str = ""
    """Why the run stopped before its last round; empty if it did not."""

    @cached_property
    def ledger(self) -> list[Row]:
        """Costs and routes, round by round; round 0 is the setup."""
        return self.records.lines("ledger")

    @cached_property
    def history(self) -> list[Row]:
        """All evaluations; where clients are real, with the seconds that the run had taken by then."""
        rows = self.records.lines("metrics")
        if not self.has_real_times:
            return rows
        spent = dict(accumulate_seconds(self.records.lines("timings")))
        return [{**row, REAL_SECONDS: spent.get(row["round"])} for row in rows]

    @property
    def has_real_times(self) -> bool:
        """Whether clients are real, so that real times say something, and virtual ones nothing."""
        return self.experiment.data_at_nodes

    @cached_property
    def events(self) -> list[Row]:
        """Fault events and how each was handled."""
        return self.records.lines("events")

    @property
    def rounds(self) -> int:
        """The number of finished rounds."""
        return int(self.ledger[-1]["round"]) if self.ledger else 0

    @property
    def seed(self) -> int:
        return self.experiment.seed

    @property
    def client_names(self) -> list[str]:
        """The names of all clients, such as those of nodes; empty where they have only numbers."""
        return list(map(str, self.records.plan.get("client_names", ())))

    @cached_property
    def result(self) -> Result:
        """The result so far, without the model's weights."""

        def total(name: str) -> Any:
            return sum(line.get(name, 0) for line in self.ledger)

        summary = self.records.result or {}
        return Result(
            experiment=self.experiment,
            training=self.records.training,
            task=self.records.task,
            history=self.history,
            weights=cast("Tensor", None),  # reports need none, and reading them would need PyTorch
            model={},
            rounds=self.rounds,
            client_updates=total("client_updates"),
            longest_route=max((line["longest_route"] for line in self.ledger), default=0),
            transfers={kind: total(kind) for kind in KINDS},
            bytes=total("bytes"),
            seconds=summary.get("seconds") or sum(line["seconds"] for line in self.records.lines("timings")),
            virtual_seconds=total("virtual_seconds"),
            idle_seconds=total("idle_seconds"),
            computing_seconds=total("computing_seconds"),
            communicating_seconds=total("communicating_seconds"),
            run=self.records.path,
            recorded_sha256=summary.get("weights_sha256") or "unknown",
            stopped=self.stopped,
            final=self.records.final_metrics,
            client_rows=self.records.lines("client_metrics"),
            client_resamples=self.records.lines("client_resamples"),
        )


def accumulate_seconds(timings: Iterable[Row]) -> Iterator[tuple[int, float]]:
    """Each round, and the seconds up to its end."""
    spent = 0.0
    for line in timings:
        spent += line["seconds"]
        yield line["round"], spent


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method; they differ only in the seed."""

    name: str
    method: str
    runs: tuple[RunView, ...]
    seeds: tuple[int, ...]
    """All planned seeds, started or not."""

    folder: Path
    """The folder of their comparison, or of the first run if they are of none."""

    @property
    def evaluated(self) -> tuple[RunView, ...]:
        """Runs with at least one evaluation, without failed ones."""
        return tuple(run for run in self.runs if run.history and run.state not in FAILURES)

    def as_method_results(self) -> MethodResults:
        """Return the same runs as results of a comparison."""
        diverged, untrained = (
            tuple(f"seed {run.seed}: {run.reason}" for run in self.runs if run.state == failure) for failure in FAILURES
        )
        return MethodResults(self.name, self.method, tuple(run.result for run in self.evaluated), diverged, untrained)


@dataclass(frozen=True)
class ReportRuns:
    """All runs of a report, method by method."""

    paths: tuple[Path, ...]
    comparison: Comparison
    methods: tuple[MethodRuns, ...]

    @property
    def runs(self) -> Iterator[tuple[int, RunView]]:
        """All runs, each with the number of its method."""
        yield from ((number, run) for number, method in enumerate(self.methods) for run in method.runs)

    @property
    def states(self) -> dict[str, int]:
        """State → number of runs; those that have not started are waiting."""
        waiting = sum(len(method.seeds) - len(method.runs) for method in self.methods)
        return dict(Counter([run.state for _, run in self.runs]) + Counter(waiting=waiting))

    @cached_property
    def outcome(self) -> ComparisonResult:
        """The same runs as the outcome of a comparison, so far."""
        own = [bool(run.records.facts.get("own_weights")) for _, run in self.runs]
        methods = tuple(method.as_method_results() for method in self.methods)
        return ComparisonResult(self.comparison, methods, bool(own) and all(own))


def load_runs(paths: Sequence[Path], baseline: str | None = None) -> ReportRuns:
    """Read run folders and comparison folders.

    Args:
        paths: the folders.
        baseline: the method that all others are compared with; default: that of the comparison, or the first.

    Raises:
        RunFolderError: a folder is missing, is no run folder, or is damaged.
        SpecError: the baseline is none of the methods.
    """
    methods: list[MethodRuns] = []
    comparisons = []
    single: dict[Path, RunView] = {}
    for path in paths:
        if (path / COMPARISON_SPEC).is_file():
            comparisons.append(load_comparison(path))
            methods += compared_methods(path, comparisons[-1])
        else:
            single.setdefault(path.resolve(), load_run(path))
    methods += _grouped_by_method(single.values())
    _check_one_metric([run for method in methods for run in method.runs])
    settings = comparisons[0] if len(paths) == len(comparisons) == 1 else _common_settings(methods)
    named = tuple(_with_unique_names(methods))
    if baseline is not None:
        names = [method.name for method in named]
        if baseline not in names:
            raise SpecError(f"--baseline: {baseline!r} is none of the methods ({', '.join(names)})")
        settings = settings.model_copy(update={"baseline": baseline})
    return ReportRuns(tuple(paths), settings, named)


def _check_one_metric(runs: Sequence[RunView]) -> None:
    """Refuse runs that cannot be drawn in one figure."""
    by_metric = {(run.records.task.name, run.records.task.headline): run.records.path for run in runs}
    if len(by_metric) > 1:
        found = "; ".join(f"{path} has {metric} ({task})" for (task, metric), path in by_metric.items())
        raise RunFolderError(f"runs of one report must have the same task and metric: {found}; report them separately")


def load_run(path: Path, failed: tuple[Failure, str] | None = None) -> RunView:
    """Read one run folder; `failed` is how and why it failed, if the comparison recorded that."""
    records = RunFolderReader.open(path)
    status = RunStatus.of(records)
    state, reason = status.state, status.reason
    if failed is not None and state not in ("complete", "running"):
        state, reason = failed
    return RunView(records, records.experiment, state, reason, status.stopped)


def _common_settings(methods: Sequence[MethodRuns]) -> Comparison:
    """A comparison that holds the evaluation settings of the first run; it is never run."""
    first = next((method.runs[0].experiment for method in methods if method.runs), None)
    if first is None:
        return Comparison.model_construct(methods=(), seeds=())
    return Comparison.model_construct(methods=(), seeds=(), eval=first.eval, data=first.data)


def compared_methods(folder: Path, comparison: Comparison) -> Iterator[MethodRuns]:
    """The methods of a comparison, with their started runs."""
    failures = _recorded_failures(folder)
    for entry in comparison.methods:
        failed = failures.get(entry.name, {})
        places = {seed: folder / entry.folder / f"seed-{seed}" for seed in comparison.seeds}
        started = {seed: place for seed, place in places.items() if (place / "run.json").is_file()}
        runs = tuple(load_run(place, failed.get(seed)) for seed, place in started.items())
        yield MethodRuns(entry.name, entry.method, runs, comparison.seeds, folder)


def _recorded_failures(folder: Path) -> dict[str, dict[int, tuple[Failure, str]]]:
    """Method → seed → how and why it failed, from the comparison's `results.json`."""
    path = folder / "results.json"
    try:
        methods = json.loads(path.read_bytes())["methods"] if path.is_file() else {}
        return {name: dict(_failures_by_seed(facts)) for name, facts in methods.items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None


def _failures_by_seed(facts: Mapping[str, Any]) -> Iterator[tuple[int, tuple[Failure, str]]]:
    for failure in FAILURES:
        for line in facts.get(failure, ()):
            seed, _, reason = line.partition(": ")
            yield int(seed.split()[1]), (failure, reason)


def _grouped_by_method(runs: Iterable[RunView]) -> Iterator[MethodRuns]:
    """Put single runs that differ only in the seed together."""
    alike: dict[str, dict[int, RunView]] = {}
    for run in runs:
        key = run.experiment.model_dump_json(exclude={"seed", "out"})
        while run.seed in alike.get(key, {}):  # the same experiment twice is shown twice
            key += "+"
        alike.setdefault(key, {})[run.seed] = run
    for found in alike.values():
        first = next(iter(found.values()))
        method, folder = first.experiment.method, first.records.path
        yield MethodRuns(method, method, tuple(found.values()), tuple(found), folder)


def _with_unique_names(methods: Sequence[MethodRuns]) -> Iterator[MethodRuns]:
    """Add the folder to names that occur twice, and a number where that is not enough."""
    names = [method.name for method in methods]
    taken: set[str] = set()
    for method in methods:
        name = method.name
        if names.count(name) > 1:
            name = f"{method.name} ({method.folder.name})"
        number, free = 2, name
        while free in taken:
            free, number = f"{name} {number}", number + 1
        taken.add(free)
        yield replace(method, name=free)
