"""The server's connection through the SuperLink: it sends requests to nodes and fetches their replies."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message as FlowerMessage
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.server.connection_interface import NodeLost, SignOfLife, SuperLinkUnreachable, no_reply
from fedrelay.engines.flower.wire.flower_messages import (
    Announcement,
    IncomingMessageTooLarge,
    IncompleteMessage,
    fetch,
    from_flower,
    is_sent_whole,
    push,
    through_blips,
    to_flower,
)
from fedrelay.engines.flower.wire.node_side_connection import HEARTBEAT, TOO_LARGE
from fedrelay.engines.flower.wire.superlink_calls import WRONG_SECRET, calling, status_of, unreachable
from fedrelay.engines.flower.wire.superlink_process.protocol import node_receiver
from fedrelay.engines.flower.wire.superlink_run import RunAlreadyTaken, SuperLinkRun

log = logging.getLogger(__name__)

REFRESH = 1.0
"""Seconds for which the list of nodes is good, and between two attempts to reach a SuperLink."""

AT_ONCE = 32
"""Replies that are fetched at the same time."""

LISTENING = 0.5
"""Seconds to wait for replies. The SuperLink tells of replies, not of nodes that are gone."""

UNASKED = 0.09
"""Seconds after a question for replies in which there is no other, unless the SuperLink tells of one."""

MOST_REQUESTS = 5000
"""Requests of one run. A SuperLink keeps about four kilobytes for each until the run ends."""

COMPLETION_WAIT = 0.1
"""Seconds to wait for the next of them to be complete."""

SLACK, BYTES_PER_SECOND = 10.0, 5e6
"""A request expires later than the wait for its reply: by `SLACK` seconds and the time to send it."""

LONGEST_HOP = 7 * 86_400.0
"""Seconds for which a SuperLink keeps a request for a hop, and so takes a reply to it."""

JITTER = random.SystemRandom()
"""Chooses when to try again; results do not depend on it."""

REQUEST_EXPIRED, REPLY_EXPIRED, NODE_OFFLINE = 3, 4, 5
"""Flower's error codes."""

UNSIGNED = "unsigned failure"
"""What is said of an error that the node has not signed: the SuperLink or a proxy may have written it."""


@dataclass(frozen=True)
class SentRequest:
    """A request that was sent."""

    superlink_run: SuperLinkRun
    seconds: float
    """How long its reply is waited for."""


class ServerSideConnection:
    """A run at a SuperLink, and a new one whenever that is lost or has had many requests."""

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
        self.older_runs: list[SuperLinkRun] = []
        """Runs whose last requests are still in flight."""
        self.refreshed = self.asked = self.looked = float("-inf")
        self.signs: Mapping[str, SignOfLife] = {}
        self.node_ids: dict[str, int] = {}
        self.sent: dict[str, SentRequest] = {}
        self.arriving: dict[str, futures.Future[Message | str]] = {}

    def online(self) -> set[str]:
        self._refresh_nodes(REFRESH)
        return set(self.node_ids)

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        if node not in self.online():
            return None
        superlink_run, life = self._run_for_next_request(), seconds + SLACK + message.bytes / BYTES_PER_SECOND
        if message.header.get("kind") == "hop":  # who sends it decides by signs of life when to give it up
            life = max(life, LONGEST_HOP)
        sent = superlink_run.message(to_flower(message), self.node_ids[node], life)
        announced = Announcement.of(sent)
        request = PushAppMessagesRequest(messages_list=[announced.message], message_object_trees=[announced.tree])
        with calling(self.address):
            found = through_blips(lambda: superlink_run.stub.PushMessages(request))
            if not found.message_ids or not found.message_ids[0]:
                return None
            if not announced.is_whole:
                push(
                    superlink_run.stub,
                    superlink_run.node,
                    superlink_run.run,
                    found.session_id,
                    sent,
                    set(found.objects_to_push),
                )
        number = str(found.message_ids[0])
        self.sent[number] = SentRequest(superlink_run, seconds)
        return number

    def receive(self, ids: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str | None]]:
        """Replies that are complete. Parts of those that begin to arrive are fetched in the background."""
        awaited = [id for id in ids if id not in self.arriving] if self._may_have_replies() else []
        for number, (announced, tree) in self._announced(awaited).items():
            request = self.sent[number]
            try:
                reply = message_from_proto(announced)
            except Exception as error:  # nothing that a node sends may end the run
                yield number, _why_unreadable(error)
                continue
            if is_sent_whole(reply):
                yield number, _readable(reply, largest, request.seconds)
                continue
            self.arriving[number] = self.pool.submit(_fetch_reply, request, tree, largest)
            yield number, None
        coming = {number: self.arriving[number] for number in ids if number in self.arriving}
        if coming:
            futures.wait(coming.values(), COMPLETION_WAIT, futures.FIRST_COMPLETED)
        for number, fetched in coming.items():
            if fetched.done():
                with calling(self.address):
                    found = fetched.result()
                del self.arriving[number]
                yield number, found
        self._close_older_runs(ids)

    def signs_of_life(self) -> Mapping[str, SignOfLife]:
        if not self.superlink_run.shows_progress or time.monotonic() - self.looked < REFRESH:
            return self.signs
        self.looked = time.monotonic()
        with calling(self.address):
            reports = self.superlink_run.progress_of_nodes()
        names = {node_receiver(id): name for name, id in self.node_ids.items()}
        self.signs = {names[node]: sign for node, sign in reports.items() if node in names}
        return self.signs

    def wait_for_replies(self, pause: float) -> None:
        replies = self.superlink_run.replies
        if self.arriving or self.older_runs or not replies.is_supported:
            time.sleep(pause)
            return
        try:
            if replies.wait(PullAppMessagesRequest(), LISTENING):
                self.asked = float("-inf")
            else:
                self._refresh_nodes(LISTENING)  # now, and not when the next request is to be sent
        except (httpx.HTTPError, ValueError, SuperLinkUnreachable):  # whoever fetches replies finds out why
            time.sleep(pause)

    def reconnect(self) -> None:
        """Start a new run, as soon as the SuperLink answers."""
        lost = [self.superlink_run, *self.older_runs]
        self._use(self._open_run())
        for each in lost:
            each.close(success=False)

    def close(self) -> None:
        for each in (self.superlink_run, *self.older_runs):
            each.close(success=True)
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _may_have_replies(self) -> bool:
        """Whether to ask for replies: when told of one, and else now and then. Right after sending there are none."""
        if self.superlink_run.replies.is_supported and time.monotonic() - self.asked < UNASKED:
            return False
        self.asked = time.monotonic()
        return True

    def _refresh_nodes(self, seconds: float) -> None:
        """Ask which nodes are online, if it is these seconds ago."""
        if time.monotonic() - self.refreshed <= seconds:
            return
        with calling(self.address):
            nodes = self.superlink_run.stub.GetNodes(GetNodesRequest()).nodes
        known = [node for node in nodes if node.public_key in self.names]
        self.node_ids = {self.names[node.public_key]: node.node_id for node in known}
        self.refreshed = time.monotonic()

    def _run_for_next_request(self) -> SuperLinkRun:
        """The current run, or a new one if it has had enough requests; those in flight stay with theirs."""
        if self.superlink_run.requests_sent >= MOST_REQUESTS:
            fresh = self._open_run()
            self.older_runs.append(self.superlink_run)
            self.superlink_run = fresh
        self.superlink_run.requests_sent += 1
        return self.superlink_run

    def _close_older_runs(self, ids: Sequence[str]) -> None:
        """Close the older runs to which none of these requests belongs, and forget all other requests."""
        self.sent = {number: self.sent[number] for number in ids if number in self.sent}
        needed = [request.superlink_run for request in self.sent.values()]
        for each in [each for each in self.older_runs if each not in needed]:
            each.close(success=True)
            self.older_runs.remove(each)

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

    def _announced(self, numbers: Sequence[str]) -> dict[str, tuple[ProtoMessage, ObjectTree]]:
        """Which of these requests have a reply that has begun to arrive."""
        found: dict[str, tuple[ProtoMessage, ObjectTree]] = {}
        for superlink_run in (self.superlink_run, *self.older_runs):
            wanted = [number for number in numbers if self.sent[number].superlink_run is superlink_run]
            if not wanted:
                continue
            request = PullAppMessagesRequest(message_ids=wanted)
            with calling(self.address):
                answer = through_blips(partial(superlink_run.stub.PullMessages, request))
                replies = list(zip(answer.messages_list, answer.message_object_trees, strict=True))
            for reply, tree in replies:
                if (number := str(reply.metadata.reply_to_message_id)) in wanted:
                    found[number] = reply, tree
        return found


def _fetch_reply(request: SentRequest, tree: ObjectTree, largest: int) -> Message | str:
    """A reply that is sent in parts, or why there is none. Failures of the network are raised: they are no node's."""
    run = request.superlink_run
    try:
        reply = fetch(run.stub, run.node, run.run, tree, largest, request.seconds)
    except httpx.HTTPError:
        raise
    except Exception as error:
        return _why_unreadable(error)
    return _readable(reply, largest, request.seconds)


def _readable(reply: FlowerMessage, largest: int, seconds: float) -> Message | str:
    """What a reply says, or why it cannot be used."""
    try:
        return _error(reply, seconds) if reply.has_error() else from_flower(reply, largest)
    except Exception as error:  # nothing that a node sends may end the run
        return _why_unreadable(error)


def _why_unreadable(error: Exception) -> str:
    if isinstance(error, IncompleteMessage):
        return f"incomplete reply: {error}"
    if isinstance(error, BadMessage | IncomingMessageTooLarge):
        return f"bad reply: {error}"
    return f"bad reply: it cannot be read ({type(error).__name__})"


def _error(message: FlowerMessage, seconds: float) -> str:
    """What an error instead of a reply means. It is not signed, so its words are not taken for the node's."""
    code = message.error.code
    if code in (REQUEST_EXPIRED, REPLY_EXPIRED):
        return no_reply(seconds)
    if code == NODE_OFFLINE:
        return NodeLost(f"offline: no heartbeat for {2 * HEARTBEAT:g} s")
    if code == TOO_LARGE:
        return f"{UNSIGNED}: the request is larger than the node accepts; see fedrelay node --largest-message"
    return f"{UNSIGNED} (error {code:d})"
