"""Who sends, fetches and waits for messages. Those who wait are told, and what did not arrive comes again."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

import httpx
from fastapi.responses import PlainTextResponse
from flwr.proto.fleet_pb2 import (
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import ApiErrorCode, FlowerError
from google.protobuf.wrappers_pb2 import StringValue, UInt64Value

from fedrelay.engines.flower.wire.superlink_process.message_calls import MessageCalls
from fedrelay.engines.flower.wire.superlink_process.protocol import (
    DELIVERY,
    LONGEST_REPORT,
    NODE_FETCHES,
    NODE_REPORTS,
    NODE_SENDS,
    NODE_WAITS,
    RECEIVER,
    SERVER_LOOKS,
    node_receiver,
)
from fedrelay.engines.flower.wire.superlink_process.redelivery import MOST_REPEATS

ME = Node(node_id=5)
SENT = PushMessagesRequest(node=ME, messages_list=[ProtoMessage()])
WAITING = PullMessagesRequest(node=ME).SerializeToString()


class CallsOfOneNode:
    """Message calls with handlers that know node 5, and Flower's program behind them, which says where it was asked."""

    def __init__(self, *waiting):
        self.stored, self.waiting = [], list(waiting)
        self.calls = MessageCalls(self.flower)
        self.calls.handlers = {
            NODE_SENDS: (PushMessagesRequest, self.opened(self.store)),
            NODE_FETCHES: (PullMessagesRequest, self.opened(self.hand_out)),
            NODE_WAITS: (PullMessagesRequest, self.opened(self.hand_out)),
            NODE_REPORTS: (PullMessagesRequest, self.opened(self.hand_out)),
            SERVER_LOOKS: (PullMessagesRequest, self.opened(self.hand_out)),
        }

    async def flower(self, scope, receive, send):
        await PlainTextResponse(f"Flower at {scope['path']}")(scope, receive, send)

    def opened(self, handle):
        def open_call(request, asked):
            if asked.node.node_id != 5:
                raise FlowerError(ApiErrorCode.RUNTIME_AUTHENTICATION_FAILED, "not you")
            return node_receiver(5), lambda: handle(asked)

        return open_call

    def store(self, asked):
        self.stored.append(asked)
        return PushMessagesResponse(session_id="s")

    def hand_out(self, asked):
        """Each message once, as Flower does."""
        seconds, self.waiting = self.waiting[:1], self.waiting[1:]
        about = [Metadata(message_id=f"for {ttl} s", created_at=time.time(), ttl=ttl) for ttl in seconds]
        return PullMessagesResponse(messages_list=[ProtoMessage(metadata=each) for each in about])

    async def post(self, path, content=b"", **options):
        transport = httpx.ASGITransport(self.calls)
        async with httpx.AsyncClient(transport=transport, base_url="https://link") as client:
            return await client.post(path, content=content, **options)

    async def wait(self, known, seconds, node=5):
        waiting = PullMessagesRequest(node=Node(node_id=node)).SerializeToString()
        reply = await self.post(f"{NODE_WAITS}?known={known}&seconds={seconds}", waiting)
        found = UInt64Value()
        found.ParseFromString(reply.content)
        return reply.status_code, found.value

    async def send(self, receiver="node 5"):
        return await self.post(NODE_SENDS, SENT.SerializeToString(), headers={RECEIVER: receiver})

    async def fetch(self, arrived=""):
        """The ids of the messages, and the name of the delivery."""
        asked = PullMessagesRequest(node=ME).SerializeToString()
        reply = await self.post(NODE_FETCHES, asked, headers={DELIVERY: arrived})
        found = PullMessagesResponse()
        found.ParseFromString(reply.content)
        return [message.metadata.message_id for message in found.messages_list], reply.headers.get(DELIVERY, "")


def test_all_other_paths_are_flowers():
    found = asyncio.run(CallsOfOneNode().post("/v1/control/start-run"))
    assert found.text == "Flower at /v1/control/start-run"


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        (NODE_SENDS, b"\xff", 400),
        (NODE_SENDS, b"", 401),  # Flower's own error
        (NODE_FETCHES, b"", 401),
        (f"{NODE_WAITS}?known=0&seconds=1", b"", 401),
        (f"{NODE_REPORTS}?text=x", b"", 401),
        (SERVER_LOOKS, b"", 401),
        (NODE_WAITS, WAITING, 400),
        (f"{NODE_WAITS}?known=x&seconds=1", WAITING, 400),
    ],
)
def test_bad_calls_are_refused(path, content, status):
    calls = CallsOfOneNode()
    assert asyncio.run(calls.post(path, content)).status_code == status
    assert calls.stored == []
    assert calls.calls.signals == calls.calls.redelivery.last == calls.calls.progress.reports == {}


def test_what_nodes_say_about_their_progress_is_shown_to_the_server():
    calls = CallsOfOneNode()

    async def report_twice():
        for text in ("epoch 1 of 5", "epoch 2 of 5, ä&?" + "x" * 999):
            assert (await calls.post(NODE_REPORTS, WAITING, params={"text": text})).status_code == 200
        return await calls.post(SERVER_LOOKS, WAITING)

    found = StringValue()
    found.ParseFromString(asyncio.run(report_twice()).content)
    [[age, text]] = json.loads(found.value).values()
    assert 0 <= age < 60
    assert text.startswith("epoch 2 of 5, ä&?x")
    assert len(text) == LONGEST_REPORT


def test_who_waits_is_told_of_each_message_and_misses_none():
    async def play():
        calls = CallsOfOneNode()
        assert (await calls.send()).status_code == 200  # before anybody waits
        assert await calls.wait(0, 60) == (200, 1)  # told at once: there may be older messages
        waiting = asyncio.create_task(calls.wait(1, 60))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await calls.send("node 6")  # somebody else's
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await calls.send()
        assert await waiting == (200, 2)
        await calls.send()
        await calls.send()
        assert await calls.wait(2, 60) == (200, 4)  # sent while nobody waited
        assert await calls.wait(4, 0.01) == (200, 4)
        assert set(calls.calls.signals) == {node_receiver(5)}  # no sender can make signals
        assert len(calls.stored) == 5

    asyncio.run(play())


def test_a_delivery_that_did_not_arrive_is_repeated():
    async def play():
        calls = CallsOfOneNode(60, 70)
        first = await calls.fetch()
        assert first[0] == ["for 60 s"]
        assert await calls.fetch() == first  # the node has died, or the answer was cut off
        assert await calls.fetch("another") == first
        messages, second = await calls.fetch(first[1])
        assert messages == ["for 70 s"]
        assert await calls.fetch(second) == ([], "")
        assert await calls.fetch(second) == ([], "")

    asyncio.run(play())


def test_a_delivery_is_not_repeated_forever():
    """A request that kills every process that reads it, one that nobody waits for any more, and one with a reply."""

    async def play():
        calls = CallsOfOneNode(60, -1, 80, 90)
        assert [(await calls.fetch())[0] for _ in range(MOST_REPEATS + 2)] == [["for 60 s"]] * (MOST_REPEATS + 1) + [
            ["for -1 s"]
        ]
        assert (await calls.fetch())[0] == ["for 80 s"]
        await calls.send()
        assert (await calls.fetch())[0] == ["for 90 s"]

    asyncio.run(play())
