"""The server's connection through the SuperLink: it sends requests to nodes and fetches their replies."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import suppress

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message as FlowerMessage
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable, no_reply
from fedrelay.engines.flower.wire.flower_messages import (
    IncomingMessageTooLarge,
    IncompleteMessage,
    fetch,
    from_flower,
    push,
    to_flower,
)
from fedrelay.engines.flower.wire.node_side_connection import HEARTBEAT, TOO_LARGE
from fedrelay.engines.flower.wire.superlink_calls import WRONG_SECRET, calling, status_of, unreachable
from fedrelay.engines.flower.wire.superlink_run import RunAlreadyTaken, SuperLinkRun

log = logging.getLogger(__name__)

REFRESH = 1.0
"""Seconds for which the list of nodes is good, and between two attempts to reach a SuperLink."""

AT_ONCE = 32
"""Replies that are fetched at the same time."""

COMPLETION_WAIT = 0.1
"""Seconds to wait for the next of them to be complete."""

SLACK, BYTES_PER_SECOND = 10.0, 5e6
"""A request expires later than the wait for its reply: by `SLACK` seconds and the time to send it."""

JITTER = random.SystemRandom()
"""Chooses when to try again; results do not depend on it."""

REQUEST_EXPIRED, REPLY_EXPIRED, NODE_OFFLINE = 3, 4, 5
"""Flower's error codes."""

UNSIGNED = "unsigned failure"
"""What is said of an error that the node has not signed: the SuperLink or a proxy may have written it."""


class ServerSideConnection:
    """A run at a SuperLink, and a new one whenever that is lost."""

    def __init__(
        self,
        address: str,
        authority: bytes,
        secret: bytes,
        keys: dict[str, ec.EllipticCurvePublicKey],
        *,
        wait: float = 60.0,
    ) -> None:
        self.address, self.authority, self.secret, self.wait = address, authority, secret, wait
        self.names = {public_key_to_bytes(key): name for name, key in keys.items()}
        self.pool = futures.ThreadPoolExecutor(AT_ONCE)
        self._use(self._open_run())
        self._warn_of_other_runs()

    def _use(self, superlink_run: SuperLinkRun) -> None:
        self.superlink_run = superlink_run
        self.refreshed = float("-inf")
        self.node_ids: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.arriving: dict[str, futures.Future[Message | str]] = {}

    def online(self) -> set[str]:
        if time.monotonic() - self.refreshed > REFRESH:
            with calling(self.address):
                nodes = self.superlink_run.stub.GetNodes(GetNodesRequest()).nodes
            known = [node for node in nodes if node.public_key in self.names]
            self.node_ids = {self.names[node.public_key]: node.node_id for node in known}
            self.refreshed = time.monotonic()
        return set(self.node_ids)

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        if node not in self.online():
            return None
        superlink_run, life = self.superlink_run, seconds + SLACK + message.bytes / BYTES_PER_SECOND
        sent = superlink_run.message(to_flower(message), self.node_ids[node], life)
        bare = message_to_proto(remove_content_from_message(sent))
        with calling(self.address):
            found = superlink_run.stub.PushMessages(
                PushAppMessagesRequest(messages_list=[bare], message_object_trees=[get_object_tree(sent)])
            )
            if not found.message_ids or not found.message_ids[0]:
                return None
            push(
                superlink_run.stub,
                superlink_run.node,
                superlink_run.run,
                found.session_id,
                sent,
                set(found.objects_to_push),
            )
        number = str(found.message_ids[0])
        self.seconds[number] = seconds
        return number

    def receive(self, ids: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str | None]]:
        """Replies that are complete. Those that begin to arrive are fetched in the background."""
        for number, tree in self._announced([id for id in ids if id not in self.arriving]).items():
            seconds = self.seconds.pop(number)
            self.arriving[number] = self.pool.submit(_fetch_reply, self.superlink_run, tree, largest, seconds)
            yield number, None
        coming = {number: self.arriving[number] for number in ids if number in self.arriving}
        if coming:
            futures.wait(coming.values(), COMPLETION_WAIT, futures.FIRST_COMPLETED)
        for number, reply in coming.items():
            if reply.done():
                with calling(self.address):
                    found = reply.result()
                del self.arriving[number]
                yield number, found

    def reconnect(self) -> None:
        """Start a new run, as soon as the SuperLink answers."""
        lost = self.superlink_run
        self._use(self._open_run())
        lost.close(success=False)

    def close(self) -> None:
        self.superlink_run.close(success=True)
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _open_run(self) -> SuperLinkRun:
        """Open a run, as soon as there is a SuperLink. Errors that waiting cannot cure are raised at once."""
        began, told = time.monotonic(), False
        while True:
            try:
                return SuperLinkRun(self.address, self.authority, self.secret)
            except RunAlreadyTaken:
                problem = SuperLinkUnreachable(
                    f"the SuperLink at {self.address} gave our run to another server; it serves one at a time"
                )
                hopeless = False
            except httpx.HTTPError as error:
                problem = unreachable(self.address, error, WRONG_SECRET)
                hopeless = 400 <= status_of(error) < 500 or "CERTIFICATE_VERIFY_FAILED" in str(error)
            if hopeless or time.monotonic() - began > self.wait:
                raise problem
            if not told:
                log.warning("%s; trying again for %g s", problem, self.wait)
                told = True
            time.sleep(REFRESH * JITTER.uniform(1, 2))  # so that two servers do not stay in step

    def _warn_of_other_runs(self) -> None:
        with suppress(httpx.HTTPError):
            if others := self.superlink_run.other_runs():
                log.warning(
                    "the SuperLink at %s has other runs too (%d active, or dead for less than a minute): nodes answer "
                    "one request at a time, so replies are late; use one run at a time",
                    self.address,
                    others,
                )

    def _announced(self, numbers: Sequence[str]) -> dict[str, ObjectTree]:
        """Which of these requests have a reply that has begun to arrive."""
        if not numbers:
            return {}
        with calling(self.address):
            found = self.superlink_run.stub.PullMessages(PullAppMessagesRequest(message_ids=list(numbers)))
        pairs = zip(found.messages_list, found.message_object_trees, strict=True)
        replies = {str(proto.metadata.reply_to_message_id): tree for proto, tree in pairs}
        return {number: tree for number, tree in replies.items() if number in numbers}


def _fetch_reply(superlink_run: SuperLinkRun, tree: ObjectTree, largest: int, seconds: float) -> Message | str:
    """A reply, or why there is none. Failures of the network are raised: they are not the node's."""
    try:
        message = fetch(superlink_run.stub, superlink_run.node, superlink_run.run, tree, largest, seconds)
        return _error(message, seconds) if message.has_error() else from_flower(message, largest)
    except httpx.HTTPError:
        raise
    except IncompleteMessage as error:
        return f"incomplete reply: {error}"
    except (BadMessage, IncomingMessageTooLarge) as error:
        return f"bad reply: {error}"
    except Exception as error:  # nothing that a node sends may end the run
        return f"bad reply: it cannot be read ({type(error).__name__})"


def _error(message: FlowerMessage, seconds: float) -> str:
    """What an error instead of a reply means. It is not signed, so its words are not taken for the node's."""
    code = message.error.code
    if code in (REQUEST_EXPIRED, REPLY_EXPIRED):
        return no_reply(seconds)
    if code == NODE_OFFLINE:
        return f"offline: no heartbeat for {2 * HEARTBEAT:g} s"
    if code == TOO_LARGE:
        return f"{UNSIGNED}: the request is larger than the node accepts; see fedrelay node --largest-message"
    return f"{UNSIGNED} (error {code:d})"
