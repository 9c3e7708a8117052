"""Ctrl-C and SIGTERM: what was done is saved, and the message says how to go on."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fedrelay.errors import FedRelayError

_MARKS = ("run.json", "comparison.yaml")
"""Files by which `fedrelay resume` knows a folder."""


class Stopped(FedRelayError):
    """The user stopped the program."""

    exit_code = 130


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Turn an interruption into a message that names the command to continue with."""
    from fedrelay.runtime.interrupt import Interrupted

    try:
        yield
    except Interrupted as stop:
        result = stop.result
        run = f"{result.experiment.method}, seed {result.experiment.seed}"
        done = f"stopped after round {result.rounds} of {result.experiment.rounds} ({run}); everything is saved"
        raise Stopped(f"{done}{_how_to_go_on(folder)}") from None
    except KeyboardInterrupt:
        if not any((folder / mark).is_file() for mark in _MARKS):
            raise Stopped("stopped before the first round; nothing was saved") from None
        raise Stopped(
            f"stopped at once; everything up to the last checkpoint is saved{_how_to_go_on(folder)}"
        ) from None


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does at that moment."""
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


def _how_to_go_on(folder: Path) -> str:
    return f"\nContinue with:  fedrelay resume {shlex.quote(str(folder))}"
