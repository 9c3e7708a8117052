"""Limits of the bodies of requests: their size, their time, and how many are read at once.

Flower reads a request before it checks who asks. Here only small ones are read from strangers. The others are not read
until their headers have shown who sends them, and each sender has a share of the room for them.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from fastapi import HTTPException, Request
from fastapi.responses import PlainTextResponse
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.error import FlowerError
from flwr.superlink.dependencies.linkstate import get_linkstate
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedrelay.engines.flower.wire.superlink_process.protocol import LARGEST_REQUEST, TIME, node_receiver, run_receiver


@dataclass(frozen=True)
class BodyLimits:
    """What bodies may be like."""

    largest: int = LARGEST_REQUEST
    """Bytes of any body."""

    largest_of_strangers: int = 65_536
    """Bytes of a body from somebody who has not shown who they are: as many as a connection has in buffers anyway."""

    pause: float = 30.0
    """Seconds without a byte, and seconds to wait for room."""

    slowest: float = 10_000.0
    """Bytes per second of a whole body."""

    at_once: int = 32
    """Bodies that may be large, being read or answered at the same time."""

    at_once_of_one: int = 8
    """How many of them may be of one sender. Flower's clients send that many at most."""


class BodyRefused(Exception):
    """A body is not read, or not to its end."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class RequestLimits:
    """Goes before everything else; what is behind it gets whole bodies.

    Args:
        app: What is behind it.
        sender_of: Says who sends a request, by its headers alone. Raises `BodyRefused` if nobody whom it knows.
        limits: The limits.
    """

    def __init__(self, app: ASGIApp, sender_of: Callable[[Request], str], limits: BodyLimits) -> None:
        self.app, self.sender_of, self.limits = app, sender_of, limits
        self.room = asyncio.Semaphore(limits.at_once)
        self.room_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Sender → its share of the room, as long as it sends something."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _with_time(send)
        try:
            length = self._length(Request(scope))
            if length <= self.limits.largest_of_strangers:
                body = await self._read(receive, length)
                await self.app(scope, _with_body(body, receive), send)
                return
            sender = await run_in_threadpool(self.sender_of, Request(scope))
            async with self._room(sender):
                body = await self._read(receive, length)
                await self.app(scope, _with_body(body, receive), send)
        except BodyRefused as refusal:
            response = PlainTextResponse(str(refusal), refusal.status, headers={"connection": "close"})
            await response(scope, receive, send)

    def _length(self, request: Request) -> int:
        """The length of a body as announced; without a length there is none."""
        length = request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers or not length.isdecimal() or int(length) > self.limits.largest:
            raise BodyRefused(413, f"at most {self.limits.largest} bytes, and the length must be given")
        return int(length)

    @asynccontextmanager
    async def _room(self, sender: str) -> AsyncIterator[None]:
        """Wait for room, first for that of the sender: nobody else has to wait for it."""
        share = self.room_of.setdefault(sender, asyncio.Semaphore(self.limits.at_once_of_one))
        taken: list[asyncio.Semaphore] = []
        try:
            for each in (share, self.room):
                try:
                    async with asyncio.timeout(self.limits.pause):
                        await each.acquire()
                except TimeoutError:
                    raise BodyRefused(503, "too many large requests at once; try again later") from None
                taken.append(each)
            yield
        finally:
            for each in taken:
                each.release()

    async def _read(self, receive: Receive, length: int) -> bytes:
        clock = asyncio.get_running_loop().time
        deadline, pieces = clock() + self.limits.pause + length / self.limits.slowest, []
        while True:
            try:
                async with asyncio.timeout_at(min(deadline, clock() + self.limits.pause)):
                    message = await receive()
            except TimeoutError:
                raise BodyRefused(408, "the request stopped arriving, or is too slow") from None
            if message["type"] == "http.disconnect":
                raise BodyRefused(400, "the request ended too early")
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(pieces)


def _with_time(send: Send) -> Send:
    """Sends what time it is with an answer. The date of the web server is not exact, least of all while it stops."""

    async def send_with_time(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (TIME.encode(), f"{time.time():.3f}".encode())]
            message = {**message, "headers": headers}
        await send(message)

    return send_with_time


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Receives a body that has been read, and then what comes after it."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return unread.pop() if unread else await receive()

    return next_message


def sender_of(request: Request) -> str:
    """The node or the run that sends a request, by the headers with which Flower's clients show who they are."""
    request = Request({**request.scope, "state": {}})  # what is behind has a state of its own
    try:
        if request.scope["path"].startswith("/v1/fleet/"):
            key = b64decode(request.headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
            request.state.protobuf_request = ActivateNodeRequest(public_key=key)
            authenticate_node(request)
            if (node := get_linkstate(request).get_node_id_by_public_key(key)) is not None:
                return node_receiver(node)
        else:
            state = get_linkstate(request)
            return run_receiver(authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state).run_id)
    except (HTTPException, FlowerError, KeyError, ValueError):
        pass
    raise BodyRefused(401, "large requests are read from known nodes and runs only")
