"""Runs of trials: each goes on to the next rung in its own folder, side by side with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.local.simulation_engine import cores
from fedrelay.errors import DivergedError, NoUpdateAcceptedError
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.spec import Comparison, ComparisonEntry, EngineSettings, Experiment
from fedrelay.runtime.comparison import run_entry, run_folder
from fedrelay.runtime.result import Row
from fedrelay.runtime.round_loop import resume_run, run_experiment
from fedrelay.runtime.run_folder import RunFolderReader
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
        if not (self.folder / "run.json").is_file():
            return False
        records = RunFolderReader.open(self.folder)
        if RunStatus.of(records).state in ("complete", *FAILURES):
            return True
        return any(map(self.rung.reached, records.lines("metrics")))

    def execute(self, own: OwnInputs = NO_OWN_INPUTS) -> None:
        """Start the run or continue it, and pause at the rung. A run that fails has that in its folder."""
        common = {"federation": own.federation, "module": own.module, "task": own.task, "pause": self.rung.reached}
        started = (self.folder / "run.json").is_file()
        run = partial(resume_run, self.folder) if started else partial(run_experiment, self.experiment)
        try:
            run(**common)
        except (DivergedError, NoUpdateAcceptedError):
            return

    def rows(self) -> tuple[list[Row], str]:
        """The rows of metrics up to the rung, and why the run failed before it, if it did."""
        records = RunFolderReader.open(self.folder)
        history, status = records.lines("metrics"), RunStatus.of(records)
        failed = status.state in FAILURES and not any(map(self.rung.reached, history))
        return self.rung.rows(history), status.reason if failed else ""


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


def with_one_core(comparison: Comparison) -> Comparison:
    """The same comparison, whose runs take one core each; results do not depend on it."""
    return comparison.model_copy(update={"engine": comparison.engine.model_copy(update={"workers": 1})})


def process_count(engine: EngineSettings, own: OwnInputs) -> int:
    """How many runs go side by side. Ray has workers of its own, and own objects cannot be sent to processes."""
    return 1 if own.given or engine.name != "local" else engine.workers or cores()


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
        run.execute()
