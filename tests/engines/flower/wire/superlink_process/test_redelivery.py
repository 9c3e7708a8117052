"""What a receiver was handed last is kept only as long as it may be of use."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import Message, Metadata

from fedrelay.engines.flower.wire.superlink_process.redelivery import Delivery, Redelivery


def test_the_last_deliveries_of_runs_that_ended_do_not_stay_for_ever():
    now, redelivery = time.time(), Redelivery()
    redelivery.last = {"run 1": Delivery(b"model", now - 1), "run 2": Delivery(b"model", now + 60)}
    waiting = PullMessagesResponse(messages_list=[Message(metadata=Metadata(created_at=now, ttl=60))])
    answer, name = redelivery.hand_out("node 5", "", lambda: waiting)
    assert answer == waiting.SerializeToString()
    assert name == redelivery.last["node 5"].name
    assert set(redelivery.last) == {"run 2", "node 5"}


def test_replies_to_long_requests_are_kept_for_a_while_only():
    now, redelivery = time.time(), Redelivery()
    waiting = PullMessagesResponse(messages_list=[Message(metadata=Metadata(created_at=now, ttl=10**6))])
    redelivery.hand_out("run 1", "", lambda: waiting, longest=60)
    redelivery.hand_out("node 5", "", lambda: waiting)
    assert redelivery.last["run 1"].expires < now + 100
    assert redelivery.last["node 5"].expires == pytest.approx(now + 10**6)
