"""The dispatcher sends requests to many nodes at once and hands each reply, or the reason for none, to its request.

A node gets one request at a time, so that the time-out covers only its own work. A request may return the request that
follows it: a route starts with its first hop. If the connection fails, requests in flight are sent again when it is
back; that does not use up one of their tries.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import NamedTuple, TypeVar

from fedrelay.engines.flower.message_bytes import message_digest
from fedrelay.engines.flower.messages import AUDIT, FAILED, NONCE, BadMessage, Message, WrongSignature, text_field
from fedrelay.engines.flower.server.audit_trail import AuditTrail
from fedrelay.engines.flower.server.connection_interface import Connection, NodeLost, SuperLinkUnreachable, no_reply
from fedrelay.engines.flower.server.frozen_parameter_delivery import FrozenParameterDelivery
from fedrelay.errors import FedRelayError
from fedrelay.routes.arrival import Attempt
from fedrelay.routes.plan import Hop

log = logging.getLogger(__name__)

T = TypeVar("T")


class Signatures(NamedTuple):
    """How the server knows that replies are the nodes' own, and nodes that requests are the server's."""

    check_reply: Callable[[str, str, Message], None]
    """Takes the name of a node, the digest of a request and the reply. Raises `WrongSignature`."""

    sign_request: Callable[[str, Message, float], Message] | None = None
    """Takes the name of a node, a request to it and the seconds for which it is valid. Returns the signed request."""


POLL = 0.1
"""Seconds between two polls for replies, where the connection cannot tell when there are any."""

SENDING = 1.0
"""Seconds after which sending pauses to poll for replies. Large models take long to send, and replies expire."""

SMALL = 1 << 20
"""Bytes allowed for everything in a reply that is not a model."""

OFFLINE = "offline"

LISTEN_AFTER = 2.0
"""Seconds after which it matters what a node says about a hop: most are over by then."""

OFFLINE_POLLS = 10
"""Polls before an offline node is tried again: one that registers anew is offline for a moment."""

RETURN = 20.0
"""Seconds that nodes have to come back after the connection did."""

MAX_FAILURES = 3
"""Failures of the connection in a row, without a reply between them, that are tolerated beyond the waiting time."""


@dataclass
class Request:
    """A request to one node, and what to do with the reply or without one."""

    client: int
    build: Callable[[], Message]
    on_reply: Callable[[Message, float], Request | None]
    """Takes the reply and the seconds it took. Returns the next request. Raises `BadMessage` for a wrong reply."""

    on_failure: Callable[[str], Request | None]
    """Takes the reason why there is no good reply."""

    largest: int = SMALL
    """Bytes that the reply may have."""

    tries: int = 1
    """How often it may still be sent. 0: cancelled, but the node is busy until it has replied."""

    hop: Hop | None = None
    """The hop that is asked for; None: the request is for something else, and not in the audit trail."""

    refused: str = ""
    """Why the server does not use the last reply, if that is not the node's own refusal."""

    heard_at: float = float("-inf")
    """When the node last showed that it is at work on it."""

    lost: bool = False
    """Whether it was lost with its node, which may come back and go on where it was."""

    not_before: float = 0.0
    """When it may be sent."""

    sent_at: float = 0.0
    digest: str = ""
    """The digest of what was sent, where replies are signed."""

    arriving: bool = False
    """Whether the reply has begun to arrive."""

    resent: bool = False
    """Whether the connection failed while it was in flight. The node may still be busy with the first copy."""

    attempts: list[Attempt] = field(default_factory=list)
    """How earlier tries ended."""


Finished = tuple[Request, Request | None]
"""A request that is over, and the one that follows it."""


@dataclass
class Dispatcher:
    """Sends requests and collects replies."""

    connection: Connection
    nodes: Sequence[str]
    """The node of every client."""

    timeout: float
    poll: float = POLL
    wait: float = 60.0
    """Seconds after which a connection that keeps failing is given up."""

    setup: FrozenParameterDelivery = field(default_factory=FrozenParameterDelivery)
    """What a node receives before its first request."""

    signatures: Signatures | None = None
    """None: nothing is signed."""

    audit: AuditTrail | None = None
    """Where the end of every request for a hop is noted; None: nowhere."""

    interruptions: list[str] = field(default_factory=list)
    """One line for every time the connection failed and came back."""

    waiting: deque[Request] = field(default_factory=deque)
    in_flight: dict[str, Request] = field(default_factory=dict)
    _failures: int = 0
    """Since the last reply."""

    _first_failure: float = 0.0
    _back_at: float = float("-inf")

    def run(self, first: Iterable[Request]) -> Iterator[Request]:
        """Carry out these requests and all that follow; yields each when it is over. Others in flight continue."""
        wanted = list(first)
        self.waiting.extend(wanted)
        open_requests = {id(request) for request in wanted}
        while open_requests:
            finished = self.poll_once()
            for request, following in finished:
                if id(request) not in open_requests:
                    continue
                open_requests.remove(id(request))
                if following is not None:
                    open_requests.add(id(following))
                if following is not request:
                    yield request
            if not finished:
                self.connection.wait_for_replies(self.poll)

    def ask(
        self,
        clients: Iterable[int],
        build: Callable[[int], Message],
        parse: Callable[[int, Message], T],
        largest: int = SMALL,
        tries: int = 1,
    ) -> Iterator[tuple[int, T | str]]:
        """Send each client a request. Yields (client, parsed reply), or (client, why there is none), as they come."""
        found: deque[tuple[int, T | str]] = deque()

        def request(client: int) -> Request:
            def on_reply(reply: Message, seconds: float) -> None:
                found.append((client, parse(client, reply)))

            def on_failure(reason: str) -> None:
                found.append((client, reason))

            return Request(client, lambda: build(client), on_reply, on_failure, largest, tries)

        for _ in self.run(map(request, clients)):
            while found:
                yield found.popleft()

    def poll_once(self) -> list[Finished]:
        """Send what can be sent and take in what has arrived."""
        finished: list[Finished] = []
        try:
            finished.extend(self._send())
            now = time.monotonic()  # replies that arrive while others are read are not late
            finished.extend(self._receive())
            finished.extend(self._expire(now))
        except SuperLinkUnreachable as error:
            wanted = [request for request in self.in_flight.values() if request.tries > 0]
            self._reconnect(error, len(wanted))
            for request in reversed(wanted):
                request.resent, request.arriving = True, False
                request.attempts.append("failed")
                self.waiting.appendleft(request)
            self.in_flight.clear()
        if finished:
            self._failures = 0
        self.waiting.extend(following for _, following in finished if following is not None)
        return finished

    def online(self) -> set[str]:
        """The names of the nodes that are online; waits for the connection."""
        while True:
            try:
                return self.connection.online()
            except SuperLinkUnreachable as error:
                self._reconnect(error, 0)

    def cancel(self, request: Request) -> tuple[Attempt, ...]:
        """Do not send a request again and ignore its reply. Returns how its tries ended."""
        if request in self.waiting:
            self.waiting.remove(request)
            return tuple(request.attempts)
        request.tries = 0
        return (*request.attempts, "failed")

    def _send(self) -> Iterator[Finished]:
        busy, began = {request.client for request in self.in_flight.values()}, time.monotonic()
        for request in list(self.waiting):
            if time.monotonic() - began > SENDING:
                return
            node = self.nodes[request.client]
            if (
                time.monotonic() < request.not_before
                or request.client in busy
                or (node not in self.connection.online() and self._may_return(request))
            ):
                continue
            message = self.setup.request(request.client) or request.build()
            if self.audit is not None and message.header.get("kind") == "hop":
                message = replace(message, header={**message.header, AUDIT: self.audit.request_field(node)})
            if self.signatures is not None:
                # Without it an old reply to an equal request, such as for facts, would pass as the reply to this one.
                message = replace(message, header={**message.header, NONCE: token_hex(16)})
                if self.signatures.sign_request is not None:
                    message = self.signatures.sign_request(node, message, self._timeout(request))
                request.digest = message_digest(message)
            number = self.connection.send(node, message, self._timeout(request))
            request.sent_at, request.lost = time.monotonic(), False
            self.waiting.remove(request)
            if number is None:
                request.not_before = time.monotonic() + OFFLINE_POLLS * self.poll
                yield request, self._fail(request, "away", OFFLINE)
            else:
                self.in_flight[number] = request
                busy.add(request.client)

    def _receive(self) -> Iterator[Finished]:
        if not self.in_flight:
            return
        largest = max(request.largest for request in self.in_flight.values())
        for number, reply in self.connection.receive(list(self.in_flight), largest):
            if reply is None:
                self.in_flight[number].arriving = True
                continue
            request = self.in_flight.pop(number)
            if isinstance(reply, NodeLost) and request.hop is not None:
                self._take_signs([request], time.monotonic())
                if self._may_go_on(request):
                    request.lost = True
                    yield request, request
                    continue
            if isinstance(reply, str):
                yield request, self._fail(request, "failed", reply)
                continue
            try:
                if self.signatures is not None:
                    self.signatures.check_reply(self.nodes[request.client], request.digest, reply)
            except WrongSignature as error:
                yield request, self._fail(request, "answered", str(error))
                continue
            except BadMessage as error:
                yield request, self._fail(request, "answered", f"bad reply: {error}")
                continue
            if reply.header.get("kind") == FAILED:
                yield request, self._fail(request, "failed", f"failed: {text_field(reply.header, 'reason')}", reply)
                continue
            try:
                if self.setup.take_reply(request.client, reply):
                    yield request, request if request.tries > 0 else None
                    continue
                yield request, self._take(request, reply)
            except BadMessage as error:
                yield request, self._fail(request, "answered", f"bad reply: {error}", reply)

    def _take(self, request: Request, reply: Message) -> Request | None:
        """Hand a reply to its request; returns what follows. It is noted before anything is built on it."""
        request.refused = ""
        try:
            following = request.on_reply(reply, time.monotonic() - request.sent_at)
        except BadMessage:
            raise
        except FedRelayError as error:  # it ends the run
            self.note_hop(request.client, request.hop, reply, str(error))
            raise
        self.note_hop(request.client, request.hop, reply, request.refused)
        return following

    def note_hop(self, client: int, hop: Hop | None, reply: Message | None, note: str) -> None:
        """Note in the audit trail how a request for a hop ended."""
        if self.audit is not None and hop is not None:
            self.audit.add_hop(self.nodes[client], hop, reply, note)

    def _fail(self, request: Request, attempt: Attempt, reason: str, reply: Message | None = None) -> Request | None:
        """The same request for another try, or what follows its failure."""
        self.note_hop(request.client, request.hop, reply, reason)
        request.attempts.append(attempt)
        request.tries, request.arriving, request.resent = request.tries - 1, False, False
        return request if request.tries > 0 else request.on_failure(reason)

    def _expire(self, now: float) -> Iterator[Finished]:
        """Give up requests whose nodes have been silent for too long. One that says it is at work may take any time."""
        self._listen(now)
        for number, request in list(self.in_flight.items()):
            allowed = self._timeout(request)
            if now - max(request.sent_at, request.heard_at) > allowed and not request.arriving:
                del self.in_flight[number]
                yield request, self._fail(request, "silent", no_reply(allowed))

    def _listen(self, now: float) -> None:
        """Take in what nodes say about hops that take long."""
        quiet = min(LISTEN_AFTER, self.timeout / 2)
        hops = [each for each in self.in_flight.values() if each.hop is not None]
        if any(now - max(each.sent_at, each.heard_at) > quiet for each in hops):
            self._take_signs(hops, now)

    def _take_signs(self, hops: Sequence[Request], now: float) -> None:
        signs = self.connection.signs_of_life()
        for request in hops:
            sign = signs.get(self.nodes[request.client])
            if sign is None or now - sign.age <= request.sent_at:  # it is about an earlier hop
                continue
            request.heard_at = max(request.heard_at, now - sign.age)
            if now - request.sent_at > self.timeout:
                log.warning("node %r is still training: %s", self.nodes[request.client], sign.text)

    def _may_go_on(self, request: Request) -> bool:
        """Whether a node that is gone may still come back to a hop that it was at work on."""
        return request.tries > 0 and time.monotonic() - request.heard_at < self._timeout(request)

    def _timeout(self, request: Request) -> float:
        return self.timeout * (2 if request.resent else 1)

    def _may_return(self, request: Request) -> bool:
        """Whether an offline node may still come back: it notices a lost connection only after its work."""
        if request.lost:
            return self._may_go_on(request)
        return time.monotonic() - self._back_at < (self.timeout if request.resent else min(RETURN, self.timeout))

    def _reconnect(self, error: SuperLinkUnreachable, lost: int) -> None:
        now = time.monotonic()
        self._first_failure = self._first_failure if self._failures else now
        self._failures += 1
        if self._failures > MAX_FAILURES and now - self._first_failure > self.wait:
            raise SuperLinkUnreachable(f"{error}; it failed {self._failures} times without a reply between them")
        log.warning("%s; waiting for it", error)
        if self._failures > 1:
            time.sleep(min(1.0, 10 * self.poll))
        self.connection.reconnect()
        self._back_at = time.monotonic()
        line = f"{error}; back after {self._back_at - now:.0f} s, requests sent again: {lost}"
        log.warning("%s", line)
        self.interruptions.append(line)
