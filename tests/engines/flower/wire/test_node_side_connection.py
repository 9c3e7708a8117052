"""A node's client: whatever comes through it, the node stays."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.proto.error_pb2 import Error
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata
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


@pytest.mark.parametrize(
    "announced", [ProtoMessage(), ProtoMessage(metadata=Metadata(message_type="no type")), ProtoMessage(error=Error())]
)
def test_an_announcement_that_is_no_message_does_not_end_the_node(announced, client):
    """It counts as a failure of the SuperLink, which the node survives."""
    client.stub = SimpleNamespace(PullMessages=lambda request: SimpleNamespace(messages_list=[announced]))
    with pytest.raises(httpx.DecodingError, match="an invalid message"):
        client.receive()


def test_a_node_fetches_what_it_is_told_of_and_then_waits(client):
    """Told of two requests at once; nothing is asked in vain, and one that it was not told of costs one wait."""
    asked, told, waiting = [], [2, 0, 0], ["first", "second", None, "not told of"]
    client.expected = 0
    client.requests = SimpleNamespace(is_supported=True, wait=lambda node, seconds: asked.append("wait") or told.pop(0))
    client.stub = None
    client.receive = lambda: asked.append("fetch") or waiting.pop(0)
    assert [client.next_request(2.0) for _ in range(4)] == ["first", "second", None, "not told of"]
    assert asked == ["wait", "fetch", "fetch", "wait", "fetch", "wait", "fetch"]


def test_a_node_only_fetches_where_it_is_not_told(client):
    client.expected, client.requests = 0, SimpleNamespace(is_supported=False)
    client.receive = lambda: None
    assert client.next_request(2.0) is None
