"""Ctrl-C and SIGTERM: completed rounds are saved, and the message names the command to continue."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fedrelay.errors import FedRelayError

_RESUMABLE = ("run.json", "comparison.yaml", "tuning.yaml")
"""A folder with one of these files can be resumed."""


class StoppedByUser(FedRelayError):
    """The user stopped the program."""

    exit_code = 130


@contextmanager
def explain_interruption(folder: Path) -> Iterator[None]:
    """Turn an interruption into a message that names the command to continue."""
    from fedrelay.runtime.interrupt import Interrupted

    resume = f"\nContinue with:  fedrelay resume {shlex.quote(str(folder))}"
    try:
        yield
    except Interrupted as stop:
        result, experiment = stop.result, stop.result.experiment
        run = f"{experiment.method}, seed {experiment.seed}"
        raise StoppedByUser(
            f"stopped after round {result.rounds} of {experiment.rounds} ({run}); everything is saved{resume}"
        ) from None
    except KeyboardInterrupt:
        if not any((folder / name).is_file() for name in _RESUMABLE):
            raise StoppedByUser("stopped before the first round; nothing was saved") from None
        raise StoppedByUser(f"stopped at once; everything up to the last checkpoint is saved{resume}") from None


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM does what Ctrl-C would do at that moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # Ctrl-C is ignored, as in a shell's background jobs
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
