"""Progress of runs: a bar on a terminal, and a line for each run that ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from fedrelay.report.format import duration
from fedrelay_reproduce.experiments import ClaimRun
from fedrelay_reproduce.workers import Ended


@contextmanager
def show_progress(console: Console, runs: int) -> Iterator[Callable[[ClaimRun, Ended], None]]:
    """Show how many of the runs have ended; call the result for each."""
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
        bar, numbers = progress.add_task("runs", total=runs), count(1)

        def ended(run: ClaimRun, how: Ended) -> None:
            number = next(numbers)
            progress.update(bar, completed=number)
            problem = how.problem.splitlines()[0] if how.problem else None
            line = Text(f"  {number:>3}/{runs}  {run.title}: ")
            line.append(f"failed, {problem}" if problem else duration(how.seconds), style="red" if problem else "")
            console.print(line, soft_wrap=True)

        yield ended
