"""A node's client: whatever comes through it, the node stays."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from tests.engines.flower.wire.stand_ins import ME, status

from fedrelay.engines.flower.wire import node_side_connection as module
from fedrelay.engines.flower.wire.node_side_connection import NodeNotRecognized, NodeSideConnection, RegistrationRefused


@pytest.fixture
def client():
    """One that nobody opened."""
    found = NodeSideConnection.__new__(NodeSideConnection)
    found.node, found.last_contact, found.over = ME, 0.0, threading.Event()
    return found


def failing(error):
    def fail(request):
        raise error

    return fail


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (status(401), NodeNotRecognized),
        (status(404), NodeNotRecognized),
        (status(412), RegistrationRefused),
        (status(503), httpx.HTTPStatusError),
        (ValueError("Invalid protobuf response payload"), httpx.DecodingError),
    ],
)
def test_errors_of_a_superlink(failure, kind, client):
    with pytest.raises(kind):
        client._call(failing(failure), None)
    assert (client.last_contact > 0) == isinstance(
        failure, httpx.HTTPStatusError
    )  # a page of a proxy is no sign of life


@pytest.mark.parametrize("failure", [httpx.ConnectError("cut"), ValueError("a page"), RuntimeError("closed")])
def test_heartbeats_continue_after_a_failure(failure, client, monkeypatch):
    monkeypatch.setattr(module, "HEARTBEAT", 0.0)
    beats = []

    def beat(request):
        beats.append(request.heartbeat_interval)
        if len(beats) == 3:
            client.over.set()
        raise failure

    client.stub = SimpleNamespace(SendNodeHeartbeat=beat)
    client._send_heartbeats()
    assert len(beats) == 3
