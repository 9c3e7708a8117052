"""What our clients say in headers: who is to be told of a message, and what arrived last."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Error
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from tests.engines.flower.wire.stand_ins import CUT, REQUEST, flower_message

from fedrelay.engines.flower.wire.message_interceptors import AnnouncementHttpInterceptor, DeliveryHttpInterceptor
from fedrelay.engines.flower.wire.superlink_process.protocol import DELIVERY, RECEIVER


@pytest.mark.parametrize(
    ("method", "reply_to", "receiver"),
    [("PushMessages", "", "node 1"), ("PushMessages", "a", "run 7"), ("PullMessages", "", None)],
)
def test_an_announcement_says_who_is_to_be_told(method, reply_to, receiver):
    message = PushMessagesRequest(messages_list=[message_to_proto(flower_message(Error(code=1), reply_to))])
    request = httpx.Request("POST", REQUEST.url)
    context = SimpleNamespace(rpc_method=f"/flwr.proto.Fleet/{method}", message=message, request=request)
    assert AnnouncementHttpInterceptor().intercept(context, lambda given: given.request) is request
    assert request.headers.get(RECEIVER) == receiver


def test_who_fetches_says_what_arrived_last():
    proof, asked = DeliveryHttpInterceptor(), []

    def answer(context):
        asked.append(context.request.headers.get(DELIVERY))
        if len(asked) == 2:
            raise CUT
        return httpx.Response(200, headers={DELIVERY: f"d{len(asked)}"} if len(asked) != 4 else {})

    def call(method):
        request = httpx.Request("POST", REQUEST.url)
        return proof.intercept(SimpleNamespace(rpc_method=f"/flwr.proto.Fleet/{method}", request=request), answer)

    call("PullMessages")
    with pytest.raises(httpx.ConnectError):
        call("PullMessages")
    for method in ("PullMessages", "PullMessages", "PullMessages", "PullObject"):
        call(method)
    assert asked == ["", "d1", "d1", "d3", "d3", None]
