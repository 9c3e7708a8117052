"""Output of commands: results on stdout, progress and notes on stderr; with `--json`, only JSON on stdout."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fedrelay.report.format import finite

_WIDEST = 1000
"""Characters of a line."""

_REAL_STDOUT: ContextVar[TextIO] = ContextVar("real stdout")
"""Where JSON goes while everything else that is printed goes to stderr."""


@contextmanager
def only_json_on_stdout() -> Iterator[None]:
    """Send what plug-ins, hooks and models print to stderr, so that stdout holds the JSON of the command alone."""
    token = _REAL_STDOUT.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _REAL_STDOUT.reset(token)


class CommandOutput:
    """Prints the output of a command; `--quiet` and `--json` decide how much and where."""

    def __init__(self, *, quiet: bool = False, json: bool = False) -> None:
        self.json = json
        self.stderr = _console(stderr=True, quiet=quiet)
        self.stdout = self.stderr if json else _console(quiet=quiet)

    def print(self, *results: RenderableType) -> None:
        """Print results, unless `--quiet`."""
        for result in results:
            self.stdout.print(result)

    def print_rows(self, table: Table) -> None:
        """Print a table with one line for each row, however wide it gets, unless `--quiet`."""
        measured = self.stdout.measure(table, options=self.stdout.options.update(max_width=_WIDEST))
        table.width = measured.maximum
        self.stdout.print(table, crop=False, no_wrap=True, overflow="ignore")

    def note(self, text: str, style: str = "none") -> None:
        """Print a line to stderr, unless `--quiet`. It is neither wrapped nor read as markup."""
        self.stderr.print(Text(text, style), soft_wrap=True)

    def print_json(self, value: Mapping[str, Any]) -> None:
        """Print a JSON object, if `--json`."""
        if self.json:
            _console(file=_REAL_STDOUT.get(None)).print(json.dumps(finite(value)), soft_wrap=True)

    @contextmanager
    def showing_warnings(self) -> Iterator[None]:
        """Print warnings of the package as notes, each kind once, then how many more there were."""
        logger, handler = logging.getLogger("fedrelay"), _WarningNotes(self)
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            handler.summarize()
            logger.propagate = propagates


def print_error(message: str) -> None:
    """Print an error to stderr, also with `--quiet`."""
    _console(stderr=True).print(Text("fedrelay: ", "bold red") + Text(message, "none"), soft_wrap=True)


def _console(*, stderr: bool = False, quiet: bool = False, file: TextIO | None = None) -> Console:
    """A console that prints text unchanged: labels and paths may look like markup."""
    return Console(stderr=stderr, quiet=quiet, file=file, highlight=False, markup=False, emoji=False)


class _WarningNotes(logging.Handler):
    """Prints warnings as yellow notes. Warnings that differ only in their numbers are of one kind."""

    def __init__(self, output: CommandOutput) -> None:
        super().__init__(logging.WARNING)
        self.output = output
        self.seen: dict[str, dict[str, None]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        same_kind, text = self.seen.setdefault(record.msg, {}), record.getMessage()
        if not same_kind:
            self._note(text)
        same_kind[text] = None

    def summarize(self) -> None:
        """Print the last warning of each kind that occurred more than once, and how many were left out."""
        for _, *more in self.seen.values():
            if more:
                self._note(more[-1] + (f" (and {len(more) - 1} more like this)" if len(more) > 1 else ""))

    def _note(self, text: str) -> None:
        self.output.note(f"note: {text}", "yellow")
