"""Headers of our calls that Flower's clients do not send."""

from __future__ import annotations

import httpx
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from fedrelay.engines.flower.wire.superlink_process.protocol import DELIVERY, RECEIVER, node_receiver, run_receiver


class AnnouncementHttpInterceptor:
    """Says who is to be told when a message is announced."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        if context.rpc_method.endswith("/PushMessages"):
            about = context.message.messages_list[0].metadata
            to_server = bool(about.reply_to_message_id)
            context.request.headers[RECEIVER] = (
                run_receiver(about.run_id) if to_server else node_receiver(about.dst_node_id)
            )
        return call_next(context)


class DeliveryHttpInterceptor:
    """Says which delivery arrived last when messages are fetched: one that was lost comes again."""

    def __init__(self) -> None:
        self.arrived = ""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        if not context.rpc_method.endswith("/PullMessages"):
            return call_next(context)
        context.request.headers[DELIVERY] = self.arrived
        response = call_next(context)
        self.arrived = response.headers.get(DELIVERY, self.arrived)
        return response
