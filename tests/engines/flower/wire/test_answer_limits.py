"""A hostile SuperLink or proxy cannot fill the memory of those who ask it, nor send their requests elsewhere."""

from __future__ import annotations

import gzip
import socket
import zlib

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.proto.error_pb2 import Error
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.supercore.runtime import RuntimeHttpClient
from tests.engines.flower.wire.hostile_superlink import HostileSuperLink

from fedrelay.engines.flower.credentials import CA, make_node_key, make_server_folder, private_key, read
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable
from fedrelay.engines.flower.wire import answer_limits
from fedrelay.engines.flower.wire.answer_limits import AnswerRefused
from fedrelay.engines.flower.wire.node_side_connection import NodeSideConnection
from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection
from fedrelay.engines.flower.wire.superlink_calls import client

LIMIT = 100_000
BUFFERED = 8 * 10**6
"""Bytes that operating systems take from a sender before anybody reads them, at most."""

UNFOLDED = bytes(10**7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("server")
    make_server_folder(found, ["127.0.0.1"])
    make_node_key(found / "a.key")
    return found


@pytest.fixture
def answering(folder, monkeypatch):
    """Starts SuperLinks that answer everything with these pieces."""
    monkeypatch.setattr(answer_limits, "LARGEST_ANSWER", LIMIT)
    started = []

    def start(*pieces, **endless):
        started.append(HostileSuperLink(folder, pieces or endless["endless"]))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def node_of(folder, tmp_path):
    """Makes nodes of a SuperLink."""
    opened = []

    def made(link):
        key = private_key(folder / "a.key")
        opened.append(NodeSideConnection(link.address, read(folder / CA, "ca"), key, tmp_path / "id"))
        return opened[-1]

    yield made
    for each in opened:
        each.over.set()
        each.stub.close()


def head(*lines, status="200 OK"):
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode()


def compressed(encoding, content):
    return head(f"content-encoding: {encoding}", f"content-length: {len(content)}"), content


@pytest.mark.parametrize(
    "answer",
    [
        compressed("gzip", gzip.compress(UNFOLDED)),
        compressed("deflate", zlib.compress(UNFOLDED)),
        compressed("GZIP, gzip", gzip.compress(gzip.compress(UNFOLDED))),
        compressed("br", b"whatever it is"),
    ],
    ids=["gzip", "deflate", "twice", "another"],
)
def test_a_compressed_answer_is_not_unpacked(answer, answering, node_of, folder):
    """A hundred kilobytes of it would be ten megabytes here, and could be gigabytes."""
    link = answering(*answer)
    with pytest.raises(AnswerRefused, match=r"is compressed \(.*\), which is never accepted; .* turn off compression"):
        node_of(link).receive()
    with pytest.raises(SuperLinkUnreachable, match=r"sends what it must not \(the answer is compressed"):
        ServerSideConnection(link.address, read(folder / CA, "ca"), b"secret", {}, wait=0)


def repeated(first, piece, times):
    yield first
    for _ in range(times):
        yield piece


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (head("connection: close"), bytes(10**6)),
        (head("transfer-encoding: chunked"), b"100000\r\n" + bytes(0x100000) + b"\r\n"),
        (head(f"content-length: {10**12}"), bytes(10**6)),
        (head(f"content-length: {10**12}", status="500 Internal Server Error"), bytes(10**6)),
    ],
    ids=["until it closes", "in chunks", "with a length", "an error"],
)
def test_an_answer_without_end_is_cut_off_while_it_arrives(first, piece, answering, node_of):
    link = answering(endless=repeated(first, piece, 50))
    with pytest.raises(AnswerRefused, match=rf"more than {LIMIT} bytes, which no SuperLink of FedRelay sends"):
        node_of(link).receive()
    assert link.sent < LIMIT + BUFFERED


def test_a_request_is_not_sent_elsewhere(answering, node_of):
    """Neither a model nor a question of the attacker reaches another machine of the node's network."""
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.setblocking(False)
        location = f"location: http://127.0.0.1:{inside.getsockname()[1]}/v1/fleet/pull-messages"
        link = answering(head(location, "content-length: 0", status="307 Temporary Redirect"))
        with pytest.raises(AnswerRefused, match=r"leads elsewhere \(status 307\), which is never followed"):
            node_of(link).receive()
        with pytest.raises(BlockingIOError):
            inside.accept()


def test_who_asks_for_several_messages_may_get_as_many(answering, folder):
    content = PullAppMessagesResponse(
        messages_list=[ProtoMessage(error=Error(reason="x" * 2 * LIMIT))]
    ).SerializeToString()
    link = answering(head(f"content-length: {len(content)}"), content)
    with client(RuntimeHttpClient, link.address, read(folder / CA, "ca"), "flwr-serverapp") as stub:
        assert len(stub.PullMessages(PullAppMessagesRequest(message_ids=["a", "b", "c"])).messages_list) == 1
        with pytest.raises(AnswerRefused):
            stub.PullMessages(PullAppMessagesRequest(message_ids=["a"]))


def test_a_usual_answer_is_read(answering, node_of):
    content = PullMessagesResponse().SerializeToString()
    link = answering(head("content-encoding: identity", f"content-length: {len(content)}"), content)
    assert node_of(link).stub.PullMessages(PullMessagesRequest()) == PullMessagesResponse()
