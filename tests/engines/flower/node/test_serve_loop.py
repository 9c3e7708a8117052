"""A node's folder belongs to one serve_loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower.node import serve_loop
from fedrelay.engines.flower.node.serve_loop import _locked
from fedrelay.engines.flower.wire.node_side_connection import NodeNotRecognized, RegistrationRefused
from fedrelay.errors import EngineError

HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_process_of_a_node_is_refused(tmp_path):
    with _locked(tmp_path):
        pass
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / ".lock")], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(EngineError, match="another process of this node is running"), _locked(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (RegistrationRefused("status 412"), r"\(status 412\): its public key is not registered"),
        (NodeNotRecognized("status 401"), r"\(status 401\): the signature is not accepted; is the address right"),
    ],
)
def test_a_refused_registration_says_why(refusal, message, monkeypatch):
    class Refusing:
        attempts = 0

        def register(self):
            self.attempts += 1
            raise refusal

    monkeypatch.setattr(serve_loop, "PAUSE", 0.01)
    client = Refusing()
    with pytest.raises(EngineError, match=message):
        serve_loop._register(client, threading.Event(), 0.03)
    assert 2 <= client.attempts <= serve_loop.ATTEMPTS


@pytest.mark.parametrize(
    "failure", [RegistrationRefused("status 412"), NodeNotRecognized("status 401"), httpx.DecodingError("a page")]
)
def test_a_node_registers_again_after_any_failure(failure, monkeypatch, tmp_path):
    monkeypatch.setattr(serve_loop, "PAUSE", 0.0)
    over, log = threading.Event(), []

    class Failing:
        last_contact, requests = float("inf"), SimpleNamespace(is_supported=True)

        def register(self):
            log.append("register")

        def next_request(self, seconds):
            if log.count("register") == 1:
                raise failure
            over.set()

        def close(self):
            log.append("close")

    serve = partial(serve_loop.serve, Failing(), None, "link:1", Path("ca.pem"), tmp_path, over=over, patience=60.0)
    serve(say=lambda line: None)
    assert log == ["register", "register", "close"]


def test_a_node_that_is_shut_out_comes_back_by_itself(monkeypatch, tmp_path, caplog):
    """The SuperLink knew it before, so it waits; a node that was never known is told at once."""
    monkeypatch.setattr(serve_loop, "PAUSE", 0.001)
    over, log, said = threading.Event(), [], []

    class ShutOut:
        last_contact, requests = float("inf"), SimpleNamespace(is_supported=True)

        def register(self):
            log.append("register")
            if 1 < len(log) < 20:
                raise RegistrationRefused("status 412")

        def next_request(self, seconds):
            if len(log) == 1:
                raise NodeNotRecognized("status 401")
            over.set()

        def close(self):
            log.append("close")

    serve = partial(serve_loop.serve, ShutOut(), None, "link:1", Path("ca.pem"), tmp_path, over=over, patience=60.0)
    serve(say=said.append)
    assert log == ["register"] * 20 + ["close"]
    assert said == ["connected to link:1: ready"] * 2
    assert caplog.text.count("the SuperLink does not accept this node (status 412)") == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_a_node_polls_where_the_superlink_does_not_tell_of_requests(is_told):
    class Idle:
        asked, paused, requests = 0, [], SimpleNamespace(is_supported=is_told)

        def next_request(self, seconds):
            self.asked += 1

    class Over:
        def is_set(self):
            return client.asked == 5

        def wait(self, seconds):
            client.paused.append(seconds)

    client = Idle()
    serve_loop._answer_requests(client, None, Over(), None, None)
    assert len(client.paused) == (0 if is_told else 5)
    assert client.paused == sorted(client.paused)


def test_a_node_that_waits_can_be_stopped(monkeypatch):
    class Refusing:
        def register(self):
            over.set()
            raise RegistrationRefused("status 412")

    over = threading.Event()
    assert not serve_loop._register(Refusing(), over, 60.0)
