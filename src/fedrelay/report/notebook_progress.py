"""Progress of runs in a notebook: a bar that changes as a run goes on, and a line for every finished run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from fedrelay.experiment.spec import Experiment
from fedrelay.report.format import duration, score
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.result import Result

LEAST_SECONDS = 0.2
"""The least time between two changes: every change is a message to the browser."""

MOST_LINES = 12
"""The most finished runs that are listed; earlier ones are counted."""


def notebook_output() -> Callable[[str], None]:
    """Return a function that shows HTML below the cell, each time in place of what it showed before."""
    from IPython.display import HTML, display  # there in every notebook, and only there

    handles: list[Any] = []

    def show(html: str) -> None:
        if handles:
            handles[0].update(HTML(html))
        else:
            handles.append(display(HTML(html), display_id=True))

    return show


class NotebookProgress(Callback):
    """Shows the current run as a bar, and finished runs as lines."""

    def __init__(self, show: Callable[[str], None], titles: Sequence[str]) -> None:
        self.show, self.titles = show, iter(titles)
        self.lines: list[str] = []
        self.title, self.score = "", ""
        self.started, self.changed, self.first = 0.0, 0.0, 0

    def on_profiling_progress(self, done: int, clients: int) -> None:
        self._change("profiling clients", done, clients, "client", last=done == clients)

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        self.title, self.score = next(self.titles, experiment.method), ""
        self.started, self.first = time.monotonic(), round
        self._change(self.title, round, experiment.rounds, "round", last=True)

    def on_round_end(self, context: RoundContext) -> None:
        if context.row is not None:
            value = context.row.get(context.task.headline)
            self.score = f"{context.task.label} {score(context.task.headline_info, value)}"
        self._change(self.title, context.round, context.experiment.rounds, "round")

    def on_interrupt(self) -> None:
        self.title = f"{self.title}: stopping after this round"

    def on_run_end(self, result: Result) -> None:
        if self.started:
            took = f"done in {duration(time.monotonic() - self.started)}"
        else:
            self.title, took = next(self.titles, result.experiment.method), "already complete"
        found = f"{result.task.label} {score(result.task.headline_info, result.score)}"
        why = f"; stopped: {result.stopped}" if result.stopped else ""
        self.lines.append(f"{self.title}: round {result.rounds}/{result.experiment.rounds}, {found}, {took}{why}")
        self.started = 0.0
        self.show(self._finished())

    def _change(self, title: str, done: int, total: int, unit: str, *, last: bool = False) -> None:
        """Draw the bar, unless it was drawn just now."""
        now = time.monotonic()
        if not last and now - self.changed < LEAST_SECONDS:
            return
        self.changed = now
        gone = done - self.first
        left = f"{duration((now - self.started) / gone * (total - done))} left" if self.started and gone else ""
        text = escape(", ".join(part for part in (f"{unit} {done}/{total}", self.score, left) if part))
        bar = f'<progress value="{done}" max="{total}"></progress>'
        self.show(f"{self._finished()}<div>{escape(title)} {bar} {text}</div>")

    def _finished(self) -> str:
        earlier = len(self.lines) - MOST_LINES
        shown = [f"… and {earlier} earlier runs", *self.lines[-MOST_LINES:]] if earlier > 0 else self.lines
        return "".join(f"<div>{escape(line)}</div>" for line in shown)
