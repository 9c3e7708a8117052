"""Ctrl-C: the first one ends the run after the round under way, the second one at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from fedrelay.runtime.result import Result

SAME_PRESS = 0.5
"""Interrupts within this many seconds count as one: `timeout` and process managers often send two at once."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped the run after a finished and saved round; `result` is the result up to there."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"stopped after round {result.rounds} of {result.experiment.rounds}")
        self.result = result


@contextmanager
def finish_round_on_interrupt(on_interrupt: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether Ctrl-C was pressed; outside the main thread it never is."""
    asked, first = threading.Event(), 0.0
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal first
        if not asked.is_set():
            asked.set()
            first = time.monotonic()
            on_interrupt()
        elif time.monotonic() - first > SAME_PRESS:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
