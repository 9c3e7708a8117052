"""Jobs going by: a bar over all runs on a terminal, a line for each in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedrelay.claims.running import Ended, Job, Watcher
from fedrelay.report.format import duration


@contextmanager
def watching_jobs(console: Console, runs: int) -> Iterator[Watcher]:
    """A watcher that shows so many runs end."""
    with Progress(
        TextColumn("  runs"),
        BarColumn(bar_width=30, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeRemainingColumn(compact=True),
        TextColumn("[dim]Ctrl-C: save and stop"),
        console=console,
        transient=True,
        disable=console.quiet or not console.is_terminal,
    ) as progress:
        task = progress.add_task("runs", total=runs)
        yield _Lines(console, runs, lambda done: progress.update(task, completed=done))


class _Lines:
    """One line for each job that ended."""

    def __init__(self, console: Console, runs: int, moved: Callable[[int], None]) -> None:
        self.console, self.runs, self.moved, self.done = console, runs, moved, 0

    def ended(self, job: Job, how: Ended) -> None:
        """Say how."""
        self.done += 1
        self.moved(self.done)
        problem = how.problem.splitlines()[0] if how.problem else None
        words = Text(f"  {self.done:>3}/{self.runs}  {job.title}: ")
        words.append(f"failed, {problem}" if problem else duration(how.seconds), style="red" if problem else "")
        self.console.print(words, soft_wrap=True)
