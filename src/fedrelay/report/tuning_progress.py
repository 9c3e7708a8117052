"""Progress of a tuning: a bar on a terminal, a few plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

LEAST_SECONDS = 5.0
"""The least time between two lines of a log."""


@contextmanager
def tuning_progress(console: Console) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function that shows how many runs are done, of those that are known so far, and the last one."""
    if not (console.is_terminal or console.is_jupyter):
        said = time.monotonic()

        def line(done: int, known: int, title: str) -> None:
            nonlocal said
            if done == known or time.monotonic() - said >= LEAST_SECONDS:
                said = time.monotonic()
                console.print(Text(f"  {done} of {known} runs, last: {title}"), soft_wrap=True)

        yield line
        return
    with Progress(
        TextColumn("  {task.description}", markup=False),
        BarColumn(bar_width=20, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
        TimeElapsedColumn(),
        TextColumn("Ctrl-C: save and stop", style="dim"),
        console=console,
        transient=True,
        disable=console.quiet,
    ) as progress:
        bar = progress.add_task("tuning", total=None, completed=0)

        def show(done: int, known: int, title: str) -> None:
            progress.update(bar, description=title, total=known, completed=done)

        yield show
