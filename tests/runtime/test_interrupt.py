"""Ctrl-C in the round loop, with a clock that the test moves."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from fedrelay.runtime.interrupt import SAME_PRESS, finish_round_on_interrupt


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have passed."""
    seconds = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_interrupts_within_a_moment_count_as_one(clock):
    before, messages = signal.getsignal(signal.SIGINT), []
    with finish_round_on_interrupt(lambda: messages.append("stopping")) as interrupted:
        assert not interrupted()
        press()
        assert interrupted()
        clock[0] += SAME_PRESS
        press()
        assert messages == ["stopping"]
        clock[0] += 0.01
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_never_interrupted():
    answers = []

    def run() -> None:
        with finish_round_on_interrupt(lambda: answers.append("called")) as interrupted:
            answers.append(interrupted())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert answers == [False]
    assert signal.getsignal(signal.SIGINT) is before
