"""A node's folder belongs to one process."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower.node import process
from fedrelay.engines.flower.node.process import _alone
from fedrelay.engines.flower.wire import RegistrationRefused, UnknownNode
from fedrelay.errors import EngineError

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_of_a_node_is_refused(tmp_path):
    with _alone(tmp_path):
        pass
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / ".lock")], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(EngineError, match="another process of this node is running"), _alone(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (RegistrationRefused("status 412"), r"\(status 412\): its public key is not registered"),
        (UnknownNode("status 401"), r"\(status 401\): it does not accept the signature; do the clocks agree"),
    ],
)
def test_a_door_that_stays_shut_says_why(refusal, message, monkeypatch):
    class Shut:
        knocks = 0

        def enter(self):
            self.knocks += 1
            raise refusal

    monkeypatch.setattr(process, "PAUSE", 0.0)
    door = Shut()
    with pytest.raises(EngineError, match=message):
        process._enter(door, threading.Event())
    assert door.knocks == process.ATTEMPTS


@pytest.mark.parametrize(
    "trouble", [RegistrationRefused("status 412"), UnknownNode("status 401"), httpx.DecodingError("a page")]
)
def test_whatever_a_superlink_says_the_node_comes_in_again(trouble, monkeypatch):
    monkeypatch.setattr(process, "PAUSE", 0.0)
    over, log = threading.Event(), []

    class Moody:
        reached = float("inf")

        def enter(self):
            log.append("enter")

        def receive(self):
            if log.count("enter") == 1:
                raise trouble
            over.set()

        def leave(self):
            log.append("leave")

    stay = partial(process._stay, Moody(), None, "link:1", Path("ca.pem"), over=over, patience=60.0)
    stay(say=lambda line: None)
    assert log == ["enter", "enter", "leave"]
