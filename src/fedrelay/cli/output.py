"""Where things are shown: results on stdout, progress and notes on stderr, JSON alone on stdout when asked for."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from fedrelay.report.format import finite


class CommandOutput:
    """The two consoles of one command, and how much of them is used."""

    def __init__(self, *, quiet: bool = False, json: bool = False) -> None:
        self.quiet = quiet
        self.json = json
        self.notes = _console(stderr=True, quiet=quiet)
        self.results = self.notes if json else _console(quiet=quiet)

    def show(self, *things: RenderableType) -> None:
        """Show results, unless `--quiet`."""
        for thing in things:
            self.results.print(thing)

    def note(self, text: str, style: str = "none") -> None:
        """Show how things go, unless `--quiet`: a line as it is, since it may hold words of others, however long."""
        self.notes.print(Text(text, style), soft_wrap=True)

    def emit(self, value: Mapping[str, Any]) -> None:
        """Print the JSON object, if `--json`."""
        if self.json:
            text = json.dumps(finite(value))
            _console().print(text, soft_wrap=True)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Show warnings of the package as notes, each kind once, and at last how many more there were."""
        logger, handler = logging.getLogger("fedrelay"), _Notes(self.notes)
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            handler.sum_up()
            logger.propagate = propagates


def complain(message: str) -> None:
    """An error, on stderr, never hidden."""
    _console(stderr=True).print(Text("fedrelay: ", "bold red") + Text(message, "none"), soft_wrap=True)


def _console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console that shows all text as it is: labels and paths may look like markup, and style comes from elsewhere."""
    return Console(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)


class _Notes(logging.Handler):
    """Warnings as short yellow notes. Equal but for their numbers counts as the same note."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console
        self.seen: dict[str, dict[str, None]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        alike, text = self.seen.setdefault(record.msg, {}), record.getMessage()
        if not alike:
            self._note(text)
        alike[text] = None

    def sum_up(self) -> None:
        """Say how often else a note would have been due, and the last of them."""
        for _, *more in self.seen.values():
            if more:
                self._note(more[-1] + (f" (and {len(more) - 1} more like this)" if len(more) > 1 else ""))

    def _note(self, text: str) -> None:
        self.console.print(Text(f"note: {text}", "yellow"), soft_wrap=True)
