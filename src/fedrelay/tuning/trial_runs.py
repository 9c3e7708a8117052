"""Runs of trials: each goes on to the next rung in its own folder, side by side with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.local.simulation_engine import can_fork, cores
from fedrelay.errors import DivergedError, NoUpdateAcceptedError, RunFolderError
from fedrelay.experiment.comparison_runs import with_public_samples, with_watched_classes
from fedrelay.experiment.data_and_model import OwnModel, with_absolute_paths
from fedrelay.experiment.spec import ComparisonEntry, EngineSettings, Experiment
from fedrelay.runtime.comparison import run_entry
from fedrelay.runtime.comparison_result import run_folder
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.round_loop import resume_run, run_experiment
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import FAILURES, RunStatus
from fedrelay.runtime.side_by_side import RunWorkers
from fedrelay.tasks.base import Task
from fedrelay.tuning.score import Rung


@dataclass(frozen=True)
class OwnInputs:
    """Data, model and task of the user's own, where a tuning was started from Python with them."""

    federation: OwnData | None = None
    module: OwnModel | None = None
    task: Task | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """Which of them the user gave."""
        parts = {"data": self.federation, "model": self.module, "task": self.task}
        return tuple(name for name, part in parts.items() if part is not None)


NO_OWN_INPUTS = OwnInputs()


@dataclass(frozen=True)
class TrialRun:
    """One run of a trial, with one seed, up to a rung."""

    title: str
    experiment: Experiment
    """The experiment of full length; `out` is its folder."""

    rung: Rung

    @property
    def folder(self) -> Path:
        assert self.experiment.out is not None
        return self.experiment.out

    @property
    def done(self) -> bool:
        """Whether the folder shows everything up to the rung: also after a kill, nothing is done twice."""
        if not self._started:
            return False
        records = self._records()
        if RunStatus.of(records).state in ("complete", *FAILURES):
            return True
        return any(map(self.rung.reached, records.lines("metrics")))

    def execute(self, own: OwnInputs = NO_OWN_INPUTS) -> None:
        """Start the run or continue it, and pause at the rung. A run that fails has that in its folder."""
        common = {"federation": own.federation, "module": own.module, "task": own.task, "pause": self.rung.reached}
        run = partial(resume_run, self.folder) if self._started else partial(run_experiment, self.experiment)
        try:
            run(**common)
        except (DivergedError, NoUpdateAcceptedError):
            return

    def rows(self) -> tuple[list[Row], str]:
        """The rows of metrics up to the rung, and why the run failed before it, if it did."""
        records = self._records()
        history, status = records.lines("metrics"), RunStatus.of(records)
        failed = status.state in FAILURES and not any(map(self.rung.reached, history))
        return self.rung.rows(history), status.reason if failed else ""

    @property
    def _started(self) -> bool:
        return (self.folder / "run.json").is_file()

    def _records(self) -> RunFolderReader:
        """What the run wrote.

        Raises:
            RunFolderError: It has other settings than this trial, as after a change of `tuning.yaml`.
        """
        records = RunFolderReader.open(self.folder)
        if other := _other_settings(records, self.experiment):
            raise RunFolderError(
                f"{self.folder}: was run with other settings of {', '.join(other)} than this trial has; "
                "use the settings that the tuning was started with, or another --out"
            )
        return records


def _other_settings(records: RunFolderReader, wanted: Experiment) -> list[str]:
    """The settings of a run that are not those that are wanted, apart from what a run fills in or may change."""
    there = records.experiment
    [wanted] = with_watched_classes(with_public_samples([with_absolute_paths(wanted)]))
    model = wanted.model.model_copy(update={"name": wanted.model.name or there.model.name})
    metric = wanted.eval.model_copy(update={"metric": wanted.eval.metric or there.eval.metric})
    wanted = wanted.model_copy(update={"model": model, "eval": metric})
    free = {"out", "engine", *(["data"] if records.facts.get("own_data") else [])}
    if there.rounds > wanted.rounds:  # it was continued beyond its end; the rounds before are the same
        free.add("rounds")
    ours, theirs = (each.model_dump(mode="json", exclude=free) for each in (wanted, there))
    return [name for name in ours if ours[name] != theirs[name]]


@dataclass(frozen=True)
class ComparedRun:
    """One run of the comparison at the end."""

    title: str
    entry: ComparisonEntry
    experiment: Experiment
    out: Path

    @property
    def done(self) -> bool:
        return (run_folder(self.out, self.entry, self.experiment.seed) / "result.json").is_file()

    def execute(self, own: OwnInputs = NO_OWN_INPUTS) -> None:
        """Start the run or continue it. If it fails, the comparison finds that out again."""
        try:
            run_entry(self.entry, self.experiment, self.out, own.federation, own.module, own.task)
        except (DivergedError, NoUpdateAcceptedError):
            return


Run = TrialRun | ComparedRun
Execute = Callable[[Sequence[Run]], None]
"""Does runs that are not done yet."""


def with_one_core(experiment: Experiment) -> Experiment:
    """The same experiment on one core; its result does not depend on it."""
    return experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"workers": 1})})


def process_count(engine: EngineSettings, devices: Iterable[str], own: OwnInputs) -> int:
    """How many runs go side by side, on one core each.

    Only one where Ray has workers of its own, where runs would share a GPU, and for the user's own objects, which
    cannot be sent to processes.
    """
    if own.given or engine.name != "local" or not all(map(can_fork, devices)):
        return 1
    return engine.workers or cores()


@contextmanager
def executing(processes: int, own: OwnInputs, on_end: Callable[[Run], None]) -> Iterator[Execute]:
    """Yield a function that does runs; worker processes live as long as the context.

    Args:
        processes: How many runs go side by side; 1 does them in this process.
        own: The user's own inputs; only with one process.
        on_end: Called after each run, done before or now.
    """

    def one_after_another(runs: Sequence[Run]) -> None:
        for run in runs:
            if not run.done:
                run.execute(own)
            on_end(run)

    if processes == 1:
        yield one_after_another
        return
    with RunWorkers(processes) as workers:

        def several(runs: Sequence[Run]) -> None:
            left = []
            for run in runs:
                if run.done:
                    on_end(run)
                else:
                    left.append(run)
            for run, _ in workers.each(_execute, left):
                on_end(run)

        yield several


def _execute(run: Run) -> None:
    with one_thread():
        replace(run, experiment=with_one_core(run.experiment)).execute()
