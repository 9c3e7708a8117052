"""Progress of runs: a bar on a terminal or in a notebook, a few plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedrelay.experiment.prepare import OnProfilingProgress
from fedrelay.experiment.spec import Experiment
from fedrelay.report.format import duration, score
from fedrelay.report.notebook_progress import NotebookProgress, notebook_output
from fedrelay.runtime.callback import Callback, CombinedCallback, RoundContext
from fedrelay.runtime.result import Result
from fedrelay.tasks.task_facts import TaskFacts

LINES_PER_RUN = 10
"""The most progress lines of a run in a log."""

LEAST_SECONDS = 1.0
"""The least time between two lines of a run."""

LEAST_SECONDS_OF_PROFILING = 10.0
"""The least time between two lines about client profiles."""

PROFILING = "profiling clients"


@contextmanager
def watching(console: Console, titles: Sequence[str], announce: Callable[[Experiment], None]) -> Iterator[Callback]:
    """Yield a callback that shows progress; `titles` name the runs in order, `announce` prints the heading."""
    if console.quiet:
        yield Callback()
    elif console.is_jupyter:
        yield CombinedCallback(ProgressHeading(announce), NotebookProgress(notebook_output(), titles))
    elif console.is_terminal:
        with _bars(console) as progress:
            yield CombinedCallback(ProgressHeading(announce), ProgressBar(progress, titles))
    else:
        yield CombinedCallback(ProgressHeading(announce), ProgressLines(console, titles))


@contextmanager
def watching_profiles(console: Console) -> Iterator[OnProfilingProgress]:
    """Yield a callback that shows the progress of client profiling."""
    with watching(console, (), lambda _: None) as callback:
        yield callback.on_profiling_progress


class ProgressHeading(Callback):
    """Prints the heading when the first run starts."""

    def __init__(self, announce: Callable[[Experiment], None]) -> None:
        self.announce, self.printed = announce, False

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        if not self.printed:
            self.announce(experiment)
            self.printed = True

    def on_run_end(self, result: Result) -> None:
        self.on_run_start(result.experiment, result.rounds)


def _labelled(task: TaskFacts, value: float | None) -> str:
    """`accuracy 91.2 %`, `RMSE 0.82`."""
    return f"{task.label} {score(task.headline_info, value)}"


class ProgressLines(Callback):
    """Prints about ten lines per run."""

    def __init__(self, console: Console, titles: Sequence[str]) -> None:
        self.console = console
        self.titles = iter(titles)
        self.said = time.monotonic()
        self.started = False

    def on_profiling_progress(self, done: int, clients: int) -> None:
        now = time.monotonic()
        if done == clients or now - self.said >= LEAST_SECONDS_OF_PROFILING:
            self.said = now
            self.console.print(Text(f"  profiling clients: {done}/{clients}"), soft_wrap=True)

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        self.title, self.rounds = next(self.titles, experiment.method), experiment.rounds
        self.first, self.began, self.said = round, time.monotonic(), time.monotonic()
        self.score: float | None = None
        self.started = True
        if round:
            self._say(f"continues after round {round}")

    def on_round_end(self, context: RoundContext) -> None:
        """Print a line at every tenth of the run, unless the run is very fast."""
        round = context.round
        if context.row is not None:
            self.score = context.row.get(context.task.headline)
        step, now = -(-self.rounds // LINES_PER_RUN), time.monotonic()
        if round < self.rounds and round % step == 0 and now - self.said >= LEAST_SECONDS:
            self.said = now
            left = (now - self.began) / (round - self.first) * (self.rounds - round)
            self._say(f"round {round}/{self.rounds}, {_labelled(context.task, self.score)}, {duration(left)} left")

    def on_run_end(self, result: Result) -> None:
        if not self.started:
            self.title = next(self.titles, result.experiment.method)
            self._say("already complete")
            return
        self.started = False
        where = f"round {result.rounds}/{self.rounds}, {_labelled(result.task, result.score)}"
        why = f"; stopped: {result.stopped}" if result.stopped else ""
        self._say(f"{where}, done in {duration(time.monotonic() - self.began)}{why}")

    def on_interrupt(self) -> None:
        self._say("stopping after this round …")

    def _say(self, what: str) -> None:
        self.console.print(Text(f"  {self.title}: {what}"), soft_wrap=True)


class ProgressBar(Callback):
    """One bar for the current run and, if there are several runs, one line for each finished run."""

    def __init__(self, progress: Progress, titles: Sequence[str]) -> None:
        self.progress = progress
        self.several = len(titles) > 1
        self.width = max(map(len, titles), default=0)
        self.titles = iter(titles)
        self.task: TaskID | None = None
        self.profiles = False
        self.started = False

    def on_profiling_progress(self, done: int, clients: int) -> None:
        if self.task is None or not self.profiles:
            self._begin(PROFILING, clients, unit="client", hint="stop")
            self.profiles = True
        assert self.task is not None
        self.progress.update(self.task, completed=done)

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        self.title, self.rounds = next(self.titles, experiment.method), experiment.rounds
        self.began, self.score, self.started = time.monotonic(), "", True
        self._begin(self.title, self.rounds, unit="round", hint="save and stop", completed=round)
        self.profiles = False

    def on_round_end(self, context: RoundContext) -> None:
        if context.row is not None:
            self.score = score(context.task.headline_info, context.row.get(context.task.headline))
        if self.task is not None:
            self.progress.update(self.task, completed=context.round, score=self.score)

    def on_run_end(self, result: Result) -> None:
        if not self.started:
            self.title = next(self.titles, result.experiment.method)
            self._keep("already complete")
            return
        self.started = False
        why = f"   stopped in round {result.rounds}" if result.stopped else ""
        took = duration(time.monotonic() - self.began)
        self._keep(f"{score(result.task.headline_info, result.score):>7}   {took:>8}{why}")

    def on_interrupt(self) -> None:
        if self.task is not None:
            self.progress.update(self.task, description=f"{self.title}: stopping after this round …")

    def clear(self) -> None:
        """Remove the bar."""
        if self.task is not None:
            self.progress.remove_task(self.task)
            self.task = None

    def _begin(self, title: str, total: int, *, unit: str, hint: str, completed: int = 0) -> None:
        """Replace the bar with a new one."""
        self.clear()
        self.progress.start()
        self.task = self.progress.add_task(
            title, total=total, completed=completed, score="", unit=unit, hint=f"Ctrl-C: {hint}"
        )

    def _keep(self, what: str) -> None:
        """Print a line that stays."""
        if self.several:
            self.progress.console.print(Text(f"  {self.title:<{self.width}}   {what}"))


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    progress = Progress(
        TextColumn("  {task.description}", markup=False),
        BarColumn(bar_width=20, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.fields[unit]} {task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[score]:>7}", style="bold"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[hint]}", style="dim"),
        console=console,
        transient=True,
    )
    try:
        yield progress
    finally:
        progress.stop()
