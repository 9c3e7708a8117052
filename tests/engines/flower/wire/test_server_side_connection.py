"""The server's side: requests out, replies in, and what is made of a SuperLink's failures."""

# ruff: noqa: N802  # the methods of stand-ins are called what Flower calls them

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import ConfigRecord, Error, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from tests.engines.flower.wire.stand_ins import CUT, LARGEST, ME, StoredParts, flower_message, plain_message, status

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable
from fedrelay.engines.flower.wire import flower_messages, server_side_connection
from fedrelay.engines.flower.wire.flower_messages import to_flower
from fedrelay.engines.flower.wire.server_side_connection import SentRequest, ServerSideConnection
from fedrelay.engines.flower.wire.superlink_run import RunAlreadyTaken, SuperLinkRun

NESTED = json.loads("[" * 60 + "]" * 60)


class FakeLink:
    """A SuperLink as the server sees it, with nodes 'a' and 'b'; `replies` have arrived there, in parts or whole."""

    def __init__(self, replies=(), whole=False):
        self.replies, self.stored, self.whole = {}, StoredParts(), whole
        for number, content in dict(replies).items():
            message = flower_message(content, reply_to=number)
            self.replies[number] = message
            self.stored.parts |= StoredParts(message).parts
        self.PullObject, self.ConfirmMessageReceived = self.stored.PullObject, self.stored.ConfirmMessageReceived
        self.asked, self.lives = [], []

    def GetNodes(self, request):
        return SimpleNamespace(nodes=[SimpleNamespace(public_key=name, node_id=ord(name)) for name in "ab"])

    def PushMessages(self, request):
        [message] = request.messages_list
        self.lives.append(message.metadata.ttl)
        number = chr(message.metadata.dst_node_id)
        return SimpleNamespace(message_ids=[number], objects_to_push=["none"], session_id="s")

    def PushObject(self, request):
        return SimpleNamespace(stored=True)

    def PullMessages(self, request):
        self.asked.append(list(request.message_ids))
        found = [self.replies[number] for number in request.message_ids if number in self.replies]
        announced = [each if self.whole else remove_content_from_message(each) for each in found]
        trees = [get_object_tree(each) for each in found]
        return SimpleNamespace(messages_list=[message_to_proto(each) for each in announced], message_object_trees=trees)


class FakeSuperLinkRun(SuperLinkRun):
    """A run at a fake SuperLink; `failures` keep it from being opened, one after the other."""

    links: list[FakeLink]
    failures: list[Exception]
    closed: list[bool]

    def __init__(self, address, authority, secret):
        if self.failures:
            raise self.failures.pop(0)
        self.run, self.task, self.node, self.stub = 7, 8, ME, self.links[0]
        self.requests_sent, self.replies = 0, SimpleNamespace(is_supported=False)
        if len(self.links) > 1:
            self.links.pop(0)

    def other_runs(self):
        return 0

    def close(self, *, success):
        self.closed.append(success)


@pytest.fixture
def open_connection(monkeypatch):
    """Connections to fake SuperLinks, one after the other."""
    connections = []

    def make(*links, failures=(), wait=60.0):
        FakeSuperLinkRun.links, FakeSuperLinkRun.failures, FakeSuperLinkRun.closed = list(links), list(failures), []
        monkeypatch.setattr(server_side_connection, "SuperLinkRun", FakeSuperLinkRun)
        connections.append(ServerSideConnection("link:1", b"", b"", {}, wait=wait))
        connections[-1].names = {"a": "a", "b": "b"}
        return connections[-1]

    yield make
    for connection in connections:
        connection.close()


def test_a_slow_reply_does_not_delay_others(open_connection):
    link = FakeLink({"a": to_flower(plain_message(1000)), "b": to_flower(Message({"kind": "describe"}))})
    slow, released = set(StoredParts(link.replies["a"]).parts), threading.Event()
    pull = link.PullObject

    def held_up(request):
        if request.object_id in slow and not released.is_set():
            return SimpleNamespace(object_found=True, object_available=False)
        return pull(request)

    link.PullObject = held_up
    connection = open_connection(link)
    numbers = [connection.send(name, Message({}), 60.0) for name in "ab"]
    assert dict(connection.receive(numbers, LARGEST)) == {"a": None, "b": Message({"kind": "describe"})}
    assert list(connection.receive(["a"], LARGEST)) == []
    released.set()
    [(number, reply)] = until_some(lambda: connection.receive(["a"], LARGEST))
    assert (number, reply.bytes) == ("a", 4000)
    assert link.asked == [["a", "b"]]  # what is on its way is not asked for again: the SuperLink has handed it out


def test_a_reply_that_is_sent_whole_costs_one_call(open_connection):
    connection = open_connection(FakeLink({"a": to_flower(plain_message(1000))}, whole=True))
    assert connection.send("a", Message({}), 6.0) == "a"
    [(number, reply)] = connection.receive(["a"], LARGEST)
    assert (number, reply.bytes) == ("a", 4000)
    assert connection.superlink_run.stub.stored.polls == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (to_flower(Message({"x": NESTED})), "bad reply: its header is nested more than 50 deep"),
        (to_flower(plain_message(10**6)), "bad reply: more than 1000000 bytes"),
        (RecordDict({"header": ConfigRecord({"other": 1})}), "bad reply: it cannot be read (KeyError)"),
    ],
)
def test_a_bad_reply_that_is_sent_whole(content, words, open_connection):
    connection = open_connection(FakeLink({"a": content}, whole=True))
    connection.send("a", Message({}), 6.0)
    assert list(connection.receive(["a"], LARGEST)) == [("a", words)]


@pytest.mark.parametrize("type", ["no type", ""])
def test_a_reply_that_is_no_message_of_flowers_is_a_bad_reply(type, open_connection):
    link = FakeLink({"a": to_flower(plain_message())}, whole=True)
    pull = link.PullMessages

    def damaged(request):
        answer = pull(request)
        answer.messages_list[0].metadata.message_type = type
        return answer

    link.PullMessages = damaged
    connection = open_connection(link)
    [(_, found)] = connection.receive([connection.send("a", Message({}), 60.0)], LARGEST)
    assert found == "bad reply: it cannot be read (ValueError)"


def test_an_answer_with_replies_and_no_trees_is_the_superlinks(open_connection):
    link = FakeLink({"a": to_flower(plain_message())}, whole=True)
    pull = link.PullMessages
    link.PullMessages = lambda request: SimpleNamespace(
        messages_list=pull(request).messages_list, message_object_trees=[]
    )
    connection = open_connection(link)
    number = connection.send("a", Message({}), 60.0)
    with pytest.raises(SuperLinkUnreachable, match="ValueError"):
        list(connection.receive([number], LARGEST))


def test_after_many_requests_a_new_run_starts_and_those_in_flight_stay_with_theirs(open_connection, monkeypatch):
    """A SuperLink keeps something of every message until its run ends."""
    monkeypatch.setattr(server_side_connection, "MOST_REQUESTS", 2)
    links = [FakeLink() for _ in range(3)]
    connection = open_connection(*links)
    for name in "aba":
        connection.send(name, Message({}), 60.0)
    assert [len(link.lives) for link in links] == [2, 1, 0]
    links[0].replies["b"] = flower_message(to_flower(Message({"kind": "describe"})), reply_to="b")
    links[0].whole = True
    connection.sent["a"] = SentRequest(connection.superlink_run, 60.0)
    assert dict(connection.receive(["a", "b"], LARGEST)) == {"b": Message({"kind": "describe"})}
    assert FakeSuperLinkRun.closed == []
    assert list(connection.receive(["a"], LARGEST)) == []
    assert FakeSuperLinkRun.closed == [True]  # nothing of the first run is in flight
    assert links[0].asked == [["b"]]
    assert links[1].asked == [["a"], ["a"]]


def until_some(poll):
    """Poll until something is found."""
    for _ in range(100):
        if found := list(poll()):
            return found
    raise AssertionError("nothing came")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (Error(code=101, reason="the owner has withdrawn"), "unsigned failure (error 101)"),
        (Error(code=3, reason="Error: Message Unavailable"), "no reply in 6 s"),
        (Error(code=4, reason="Error: Reply Message Unavailable"), "no reply in 6 s"),
        (Error(code=5, reason="Error: Node Unavailable"), "offline: no heartbeat for 20 s"),
        (Error(code=8), "unsigned failure (error 8)"),
        (RecordDict(), "bad reply: it cannot be read (KeyError)"),
        (
            Error(code=102, reason="forged"),
            "unsigned failure: the request is larger than the node accepts; see fedrelay node --largest-message",
        ),
        (
            to_flower(Message({"x": NESTED})),
            "bad reply: its header is nested more than 50 deep",
        ),
        (to_flower(plain_message(10**6)), "bad reply: more than 1000000 bytes"),
    ],
)
def test_reasons_are_one_line_in_plain_words(content, words, open_connection):
    connection = open_connection(FakeLink({"a": content}))
    assert connection.send("a", Message({}), 6.0) == "a"
    found = list(connection.receive(["a"], LARGEST))
    assert found[0] == ("a", None)
    assert (found[1:] or until_some(lambda: connection.receive(["a"], LARGEST))) == [("a", words)]


def test_a_request_expires_later_than_the_wait_for_its_reply(open_connection):
    connection = open_connection(FakeLink())
    request = plain_message(25 * 10**5)
    connection.send("a", replace(request, header={**request.header, "kind": "evaluate"}), 6.0)
    connection.send("a", request, 6.0)  # for a hop, which may take hours
    assert connection.superlink_run.stub.lives == [6.0 + 10.0 + 2.0, server_side_connection.LONGEST_HOP]
    assert connection.send("c", plain_message(), 6.0) is None


@pytest.mark.parametrize("method", ["GetNodes", "PushMessages", "PullMessages", "PullObject"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (CUT, "the SuperLink at link:1 cannot be reached (ConnectError: cut)"),
        (status(401), "the SuperLink at link:1 no longer knows this run (status 401: no)"),
        (status(413), "the SuperLink at link:1 refuses the request (status 413: no)"),
        (status(502), "the SuperLink at link:1 fails (status 502: no)"),
    ],
)
def test_failures_of_the_network_are_not_the_nodes(method, failure, words, open_connection, monkeypatch):
    monkeypatch.setattr(flower_messages, "BLIP", 0.0)

    def fail(request):
        raise failure

    def all_of_it():
        connection.online()
        connection.send("a", Message({}), 6.0)
        until_some(lambda: [each for each in connection.receive(["a"], LARGEST) if each[1] is not None])

    links = [FakeLink({"a": to_flower(plain_message())}) for _ in range(2)]
    setattr(links[0], method, fail)
    connection = open_connection(*links)
    with pytest.raises(SuperLinkUnreachable) as caught:
        all_of_it()
    assert str(caught.value) == words
    connection.reconnect()
    assert FakeSuperLinkRun.closed == [False]  # the lost one was closed
    all_of_it()


@pytest.mark.parametrize(
    ("failures", "wait", "words"),
    [
        (
            [status(401)],
            60.0,
            "the secret of the folder (status 401: no)",
        ),
        ([status(403)], 60.0, "link:1 refuses the request (status 403: no)"),
        ([httpx.ConnectError("CERTIFICATE_VERIFY_FAILED")], 60.0, "CERTIFICATE_VERIFY_FAILED"),
        ([status(503)] * 2, 0.0, "link:1 fails (status 503: no)"),
        ([CUT] * 2, 0.0, "link:1 cannot be reached (ConnectError: cut)"),
        ([RunAlreadyTaken()] * 2, 0.0, "gave our run to another server; it serves one at a time"),
        ([CUT, status(503), RunAlreadyTaken()], 60.0, None),
    ],
)
def test_temporary_failures_are_waited_for(failures, wait, words, open_connection):
    if words is None:
        assert open_connection(FakeLink(), failures=failures, wait=wait).online() == {"a", "b"}
        return
    with pytest.raises(SuperLinkUnreachable) as caught:
        open_connection(FakeLink(), failures=failures, wait=wait)
    assert words in str(caught.value)
