"""A node's side: what Flower calls a SuperNode, in one process that stays."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Error
from flwr.app import Message as FlowerMessage
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedrelay.engines.flower.identity import PrivateKey
from fedrelay.engines.flower.messages import Message, one_line
from fedrelay.engines.flower.wire.encoding import MessageTooLarge, fetch, numbered, push, to_flower
from fedrelay.engines.flower.wire.superlink_api import client, reason_of, status_of
from fedrelay.files import write_atomically

log = logging.getLogger(__name__)

BEAT = 10.0
"""Seconds between signs of life; a node that is silent for twice as long counts as gone."""

FAILED = 101
"""The code of our own for a question that could not be answered."""

LARGEST = 2 * 10**9
"""Bytes that a node takes in one message, unless told otherwise."""

Letter = FlowerMessage
"""A message as Flower has it."""


class UnknownNode(Exception):
    """The SuperLink does not know us, or not any more."""


class RegistrationRefused(Exception):
    """The SuperLink does not want us."""


class UnreadableMessage(Exception):
    """A message that did not arrive whole, or is larger than allowed; it can be answered all the same."""

    def __init__(self, message: FlowerMessage, why: str) -> None:
        super().__init__(why)
        self.message = message


class NodeClient:
    """A node's side: it comes in, takes questions and hands out answers."""

    def __init__(self, address: str, authority: bytes, key: PrivateKey, memo: Path, largest: int = LARGEST) -> None:
        self.public = public_key_to_bytes(key.public_key())
        proof = NodeAuthHttpInterceptor(key, key.public_key())
        self.stub = client(FleetHttpClient, address, authority, "SuperNode", proof)
        self.memo, self.largest = memo, largest
        self.node: Node | None = None
        self.reached = time.monotonic()
        """When the SuperLink answered last."""
        self.over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def enter(self) -> None:
        """Come in. A node that was killed still counts as being there, so the one that was goes out first."""
        self._leave_as_before()
        request = ActivateNodeRequest(public_key=self.public, heartbeat_interval=BEAT)
        self.node = Node(node_id=self._asked(self.stub.ActivateNode, request).node_id)
        write_atomically(self.memo, str(self.node.node_id).encode())

    def receive(self) -> FlowerMessage | None:
        """The next question, if there is one; `UnreadableMessage` where it cannot be had."""
        found = self._asked(self.stub.PullMessages, PullMessagesRequest(node=self.node))
        if not found.messages_list:
            return None
        run = found.messages_list[0].metadata.run_id
        try:
            return fetch(self.stub, self._me, run, found.message_object_trees[0], self.largest)
        except httpx.HTTPError:
            raise
        except MessageTooLarge as error:
            why = f"it has {error}; see fedrelay node --largest-message"
        except Exception as error:
            why = one_line(f"it did not arrive whole ({type(error).__name__}: {error})")
        raise UnreadableMessage(message_from_proto(found.messages_list[0]), why)

    def reply(self, message: FlowerMessage, answer: Message | str) -> None:
        """Answer a question; a text says what went wrong. Whether anybody still waits for it is not known here."""
        if isinstance(answer, str):
            reply = numbered(FlowerMessage(Error(code=FAILED, reason=one_line(answer)), reply_to=message))
        else:
            reply = numbered(FlowerMessage(to_flower(answer), reply_to=message))
        bare = message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)
        request = PushMessagesRequest(
            node=self.node,
            messages_list=[bare],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[0.0],
        )
        found = self._asked(self.stub.PushMessages, request)
        missing, run = set(found.objects_to_push), message.metadata.run_id
        try:
            push(self.stub, self._me, run, found.session_id, reply, missing)
        except ObjectPushError:
            log.warning("nobody waits for an answer any more; it is dropped")

    def leave(self) -> None:
        """Go out."""
        self.over.set()
        self._leave_as_before()
        self.stub.close()

    @property
    def _me(self) -> Node:
        assert self.node is not None
        return self.node

    def _leave_as_before(self) -> None:
        if self.memo.is_file():
            try:
                self.stub.DeactivateNode(DeactivateNodeRequest(node_id=int(self.memo.read_text())))
            except (httpx.HTTPError, ValueError) as error:
                log.debug("was not there before: %s", error)

    def _asked(self, method: Callable[[Any], Any], request: Any) -> Any:
        try:
            answer = method(request)
            self.reached = time.monotonic()
            return answer
        except httpx.HTTPStatusError as error:
            self.reached = time.monotonic()
            if status_of(error) in (401, 403, 404):
                raise UnknownNode(reason_of(error)) from None
            if status_of(error) == 412:
                raise RegistrationRefused(reason_of(error)) from None
            raise
        except ValueError as error:  # such as the page of a proxy
            raise httpx.DecodingError(f"an answer that makes no sense: {error}") from None

    def _beat(self) -> None:
        while not self.over.wait(0.7 * BEAT):
            if self.node is not None:
                try:
                    self.stub.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=BEAT))
                except (httpx.HTTPError, ValueError, RuntimeError) as error:  # the client may be closed meanwhile
                    log.debug("no sign of life given: %s", reason_of(error))
