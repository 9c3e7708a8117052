"""The node's client of the SuperLink: what Flower calls a SuperNode, in one long-lived process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from flwr.app import Error
from flwr.app import Message as FlowerMessage
from flwr.common.serde import message_from_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.wrappers_pb2 import StringValue

from fedrelay.engines.flower.credentials import PrivateKey
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.wire.clock_difference import clock_disagreement
from fedrelay.engines.flower.wire.flower_messages import (
    Announcement,
    IncomingMessageTooLarge,
    fetch,
    from_flower,
    is_sent_whole,
    push,
    through_blips,
    to_flower,
)
from fedrelay.engines.flower.wire.message_waiter import MessageWaiter
from fedrelay.engines.flower.wire.superlink_calls import client, reason_of, status_of
from fedrelay.engines.flower.wire.superlink_process.protocol import NODE_REPORTS, NODE_WAITS
from fedrelay.files import write_atomically

log = logging.getLogger(__name__)

REPORT = 1.0
"""Seconds between two reports of how far a hop is, as long as it makes progress."""

HEARTBEAT = 10.0
"""Seconds between heartbeats. A node that misses two is offline."""

UNREADABLE, TOO_LARGE = 101, 102
"""Our own error codes for a request that cannot be read, so that no reply to it can be signed."""


@dataclass(frozen=True)
class UnreadableRequest:
    """Why a request cannot be read. The owner reads the reason, the server only the code."""

    reason: str
    code: int = UNREADABLE


LARGEST = 2 * 10**9
"""Bytes that a node accepts in one message by default."""


class NodeNotRecognized(Exception):
    """The SuperLink does not know this node, or no longer does."""


class ClocksDisagree(NodeNotRecognized):
    """The SuperLink refuses this node, and its clock is another."""


class RegistrationRefused(Exception):
    """The SuperLink refuses to register this node."""


class NodeSideConnection:
    """Registers a node, receives requests and sends replies."""

    progress = reported = ""
    """How far the hop is, and what was reported of it last."""

    def __init__(self, address: str, authority: bytes, key: PrivateKey, id_file: Path, largest: int = LARGEST) -> None:
        self.public = public_key_to_bytes(key.public_key())
        proof = NodeAuthHttpInterceptor(key, key.public_key())
        self.stub = client(FleetHttpClient, address, authority, "SuperNode", proof)
        self.requests = MessageWaiter(self.stub, NODE_WAITS)
        self.expected = 0
        """Requests that the SuperLink has told of, and which were not fetched yet."""
        self.id_file, self.largest = id_file, largest
        self.node = Node()
        self.last_contact = time.monotonic()
        self.over = threading.Event()
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    def register(self) -> None:
        """Register. A node that was killed still counts as online, so its last registration is ended first."""
        self._deregister()
        request = ActivateNodeRequest(public_key=self.public, heartbeat_interval=HEARTBEAT)
        self.node = Node(node_id=self._call(self.stub.ActivateNode, request).node_id)
        write_atomically(self.id_file, str(self.node.node_id).encode())

    def receive(self) -> tuple[FlowerMessage, Message | UnreadableRequest] | None:
        """The next request and its content, if there is one."""
        request = PullMessagesRequest(node=self.node)
        found = through_blips(lambda: self._call(self.stub.PullMessages, request))
        if not found.messages_list:
            return None
        try:
            message = message_from_proto(found.messages_list[0])
        except Exception as error:  # there is nothing to reply to
            raise httpx.DecodingError(f"an invalid message: {type(error).__name__}") from None
        try:
            if not is_sent_whole(message):
                run, [tree] = message.metadata.run_id, found.message_object_trees
                message = fetch(self.stub, self.node, run, tree, self.largest)
            return message, from_flower(message, self.largest)
        except httpx.HTTPError:
            raise
        except IncomingMessageTooLarge as error:
            reason = f"the request has {error}; see fedrelay node --largest-message"
            return message, UnreadableRequest(reason, TOO_LARGE)
        except Exception as error:  # no request ends the node
            return message, UnreadableRequest(one_line(f"the request cannot be read ({type(error).__name__}: {error})"))

    def reply(self, message: FlowerMessage, content: Message | UnreadableRequest) -> None:
        """Reply to a request, or say that it cannot be read."""
        inner = Error(code=content.code) if isinstance(content, UnreadableRequest) else to_flower(content)
        reply = FlowerMessage(inner, reply_to=message)
        announced = Announcement.of(reply)
        request = PushMessagesRequest(
            node=self.node,
            messages_list=[announced.message],
            message_object_trees=[announced.tree],
            clientapp_runtime_list=[0.0],
        )
        found = through_blips(lambda: self._call(self.stub.PushMessages, request))
        if announced.is_whole:
            return
        missing, run = set(found.objects_to_push), message.metadata.run_id
        try:
            push(self.stub, self.node, run, found.session_id, reply, missing)
        except ObjectPushError:
            log.warning("the server no longer waits for this reply; it is dropped")

    def next_request(self, seconds: float) -> tuple[FlowerMessage, Message | UnreadableRequest] | None:
        """The next request; waits for it where the SuperLink can tell, for at most these seconds."""
        if self.requests.is_supported and not self.expected:
            self.wait_for_request(seconds)
        found = self.receive()
        self.expected = 0 if found is None else max(0, self.expected - 1)
        return found

    def wait_for_request(self, seconds: float) -> None:
        """Wait until there may be a request, for at most these seconds."""
        request = PullMessagesRequest(node=self.node)
        self.expected += through_blips(lambda: self._call(lambda node: self.requests.wait(node, seconds), request))

    def show_progress(self, progress: object) -> None:
        """Tell the server soon how far a hop is."""
        self.progress = str(progress)

    def close(self) -> None:
        """End the registration."""
        self.over.set()
        self._deregister()
        self.stub.close()

    def _deregister(self) -> None:
        if self.id_file.is_file():
            try:
                self.stub.DeactivateNode(DeactivateNodeRequest(node_id=int(self.id_file.read_text(encoding="utf-8"))))
            except (httpx.HTTPError, ValueError) as error:
                log.debug("there was no earlier registration: %s", error)

    def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        try:
            response = method(request)
            self.last_contact = time.monotonic()
            return response
        except httpx.HTTPStatusError as error:
            self.last_contact = time.monotonic()
            if status_of(error) in (401, 403) and clock_disagreement(error.response):
                raise ClocksDisagree(reason_of(error)) from None
            if status_of(error) in (401, 403, 404):
                raise NodeNotRecognized(reason_of(error)) from None
            if status_of(error) == 412:
                raise RegistrationRefused(reason_of(error)) from None
            raise
        except ValueError as error:  # such as a web page from a proxy
            raise httpx.DecodingError(f"an invalid response: {error}") from None

    def _send_heartbeats(self) -> None:
        sent_at = time.monotonic()
        while not self.over.wait(min(REPORT, 0.7 * HEARTBEAT)):
            if self.node.node_id and self.progress != self.reported:
                self._report(self.progress)
            if self.node.node_id and time.monotonic() - sent_at >= 0.7 * HEARTBEAT - REPORT:
                sent_at = time.monotonic()
                try:
                    self.stub.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT))
                except (httpx.HTTPError, ValueError, RuntimeError) as error:  # the client may be closed meanwhile
                    log.debug("no heartbeat sent: %s", reason_of(error))

    def _report(self, text: str) -> None:
        """Say how far the hop is. If nobody hears it, the next report follows soon."""
        self.reported = text
        try:
            self.stub._unary_unary(
                path=f"{NODE_REPORTS}?{urlencode({'text': text})}",
                rpc_method=NODE_REPORTS,
                request=PullMessagesRequest(node=self.node),
                response_type=StringValue,
                timeout=HEARTBEAT,
            )
        except (httpx.HTTPError, ValueError, RuntimeError) as error:  # the client may be closed meanwhile
            log.debug("no progress reported: %s", reason_of(error))
