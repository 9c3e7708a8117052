"""The calls that send, fetch and wait for messages, answered directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fastapi import HTTPException, Request
from fastapi.responses import Response
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error import http_error_translator
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.superlink.dependencies.linkstate import get_linkstate
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue, UInt64Value
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from fedrelay.engines.flower.wire.superlink_process.new_message_signal import NewMessageSignal
from fedrelay.engines.flower.wire.superlink_process.node_progress import NodeProgress
from fedrelay.engines.flower.wire.superlink_process.protocol import (
    DELIVERY,
    NODE_FETCHES,
    NODE_REPORTS,
    NODE_SENDS,
    NODE_WAITS,
    RECEIVER,
    SERVER_FETCHES,
    SERVER_LOOKS,
    SERVER_SENDS,
    SERVER_WAITS,
    node_receiver,
    run_receiver,
)
from fedrelay.engines.flower.wire.superlink_process.redelivery import Redelivery

LONGEST_WAIT = 30.0
"""Seconds that somebody may wait."""

REPLIES_KEPT = 600.0
"""Seconds in which replies that a server may not have got are handed out again. Runs that have ended leave some."""

OpenCall = Callable[[Request, Any], tuple[str, Callable[[], Any]]]
"""Takes an HTTP request and what it asks for, and checks who asks. Returns who, and what answers."""


class MessageCalls:
    """Goes before Flower's own program, and answers the calls that every message needs.

    Flower would pass each of them through nine layers and several threads, which takes longer than the call itself.
    Here one thread calls what those layers would call in the end: Flower's check of who asks, and its handler.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.handlers = app, _handlers()
        self.signals: dict[str, NewMessageSignal] = {}
        """Receiver → its signal, for all who have waited."""

        self.redelivery = Redelivery()
        self.progress = NodeProgress()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self.handlers:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        response = await http_error_translator(request, self._answer)
        if scope["path"] in (NODE_SENDS, SERVER_SENDS) and response.status_code == 200:
            self._tell(request.headers.get(RECEIVER, ""))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["path"]
        kind, open_call = self.handlers[path]
        asked = kind()
        try:
            asked.ParseFromString(await request.body())
        except DecodeError:
            raise HTTPException(400, "the request cannot be read") from None
        request.state.protobuf_request = asked
        if path in (NODE_REPORTS, SERVER_LOOKS):
            caller, _ = await run_in_threadpool(open_call, request, asked)
            if path == NODE_REPORTS:
                self.progress.note(caller, request.query_params.get("text", ""))
            told = StringValue(value=self.progress.as_json() if path == SERVER_LOOKS else "")
            return Response(told.SerializeToString(), media_type=PROTOBUF_MEDIA_TYPE)
        if path in (NODE_WAITS, SERVER_WAITS):
            receiver, _ = await run_in_threadpool(open_call, request, asked)
            content = (await self._wait(receiver, request)).SerializeToString()
            return Response(content, media_type=PROTOBUF_MEDIA_TYPE)
        return await run_in_threadpool(self._call, path, open_call, request, asked)

    def _call(self, path: str, open_call: OpenCall, request: Request, asked: Any) -> Response:
        """Send or fetch a message."""
        caller, handle = open_call(request, asked)
        if path in (NODE_FETCHES, SERVER_FETCHES):
            longest = REPLIES_KEPT if path == SERVER_FETCHES else math.inf  # a node may come back to its hop much later
            answer, delivery = self.redelivery.hand_out(caller, request.headers.get(DELIVERY, ""), handle, longest)
            headers = {DELIVERY: delivery} if delivery else {}
            return Response(answer, media_type=PROTOBUF_MEDIA_TYPE, headers=headers)
        if path == NODE_SENDS:
            self.redelivery.forget(caller)  # who replies has the request
        return Response(handle().SerializeToString(), media_type=PROTOBUF_MEDIA_TYPE)

    async def _wait(self, receiver: str, request: Request) -> UInt64Value:
        """The number of messages for a receiver; waits if there is nothing new."""
        try:
            known, seconds = int(request.query_params["known"]), float(request.query_params["seconds"])
        except (KeyError, ValueError):
            raise HTTPException(400, "known and seconds must be numbers") from None
        signal = self.signals.setdefault(receiver, NewMessageSignal())
        await signal.wait(known, min(max(0.0, seconds), LONGEST_WAIT))
        return UInt64Value(value=signal.count)

    def _tell(self, receiver: str) -> None:
        """Tell who waits that a message was stored. Who never waited has no signal: others cannot make one."""
        if receiver in self.signals:
            self.signals[receiver].send()


def _handlers() -> dict[str, tuple[type[Any], OpenCall]]:
    """Path → what is asked there, and who answers. All check who asks, as Flower does."""

    def for_node(handle: Callable[[Any, Any], Any]) -> OpenCall:
        def open_call(request: Request, asked: Any) -> tuple[str, Callable[[], Any]]:
            authenticate_node(request)
            return node_receiver(asked.node.node_id), lambda: handle(asked, get_linkstate(request))

        return open_call

    def for_server(handle: Callable[[Any, Any, Any], Any]) -> OpenCall:
        def open_call(request: Request, asked: Any) -> tuple[str, Callable[[], Any]]:
            state = get_linkstate(request)
            task = authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)
            return run_receiver(task.run_id), lambda: handle(asked, state, task)

        return open_call

    def fetch_for_node(asked: Any, state: Any) -> Any:
        return fleet_handlers.pull_messages(asked, state, state.object_store)

    return {
        NODE_WAITS: (PullMessagesRequest, for_node(fetch_for_node)),
        NODE_FETCHES: (PullMessagesRequest, for_node(fetch_for_node)),
        NODE_REPORTS: (PullMessagesRequest, for_node(fetch_for_node)),
        SERVER_LOOKS: (PullAppMessagesRequest, for_server(runtime_handlers.pull_messages)),
        NODE_SENDS: (PushMessagesRequest, for_node(fleet_handlers.push_messages)),
        SERVER_WAITS: (PullAppMessagesRequest, for_server(runtime_handlers.pull_messages)),
        SERVER_FETCHES: (PullAppMessagesRequest, for_server(runtime_handlers.pull_messages)),
        SERVER_SENDS: (PushAppMessagesRequest, for_server(runtime_handlers.push_messages)),
    }
