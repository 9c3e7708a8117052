"""Dispatcher: questions to nodes, many at once, each with an answer in time or a reason why there is none.

A node has one message at a time, so that the time-out counts its own time alone. What comes of an inquiry may be the
next one, so a chain needs no more than a first hop. When the post comes back after a failure, questions that were
under way are asked again; that uses up no try.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.server.connection import Connection, Unreachable, no_answer
from fedrelay.local.arrival import Attempt

log = logging.getLogger(__name__)

POLL = 0.1
"""Seconds between two looks into the letter-box."""

SENDING = 1.0
"""Seconds after which no more questions are sent until answers were looked for: large models take long to send, and an
answer is good for a while only."""

SMALL = 1 << 20
"""Bytes allowed for what is no model."""

AWAY = "not there"

RETURN = 20.0
"""Seconds that nodes get to come back after the post."""

ENOUGH = 3
"""So many failures of the post without a single answer between them are no accident."""


@dataclass
class Request:
    """One question to one node, and what is done with the answer or without one."""

    client: int
    ask: Callable[[], Message]
    answered: Callable[[Message, float], Request | None]
    """Takes an answer and the seconds it took, and gives the next inquiry; raises `BadMessage` where the answer is
    not what was asked for."""

    failed: Callable[[str], Request | None]
    """Takes the reason why there is no good answer."""

    largest: int = SMALL
    """Bytes that an answer may have."""

    tries: int = 1
    """How often it may be asked; 0: nobody wants to know any more, but its node is busy until it has answered."""

    sent: float = 0.0
    arriving: bool = False
    """Its answer has begun to come."""

    again: bool = False
    """It was under way when the post failed: its node may still be busy with the first asking."""

    failures: list[Attempt] = field(default_factory=list)
    """What became of those that came to nothing."""


@dataclass
class Dispatcher:
    """Who carries them out, and how patiently."""

    connection: Connection
    nodes: Sequence[str]
    """The name of every client's node."""

    timeout: float
    poll: float = POLL
    wait: float = 60.0
    """Seconds after which a post that fails again and again is given up."""

    interruptions: list[str] = field(default_factory=list)
    """How often the post failed and came back, a line for each time."""

    waiting: deque[Request] = field(default_factory=deque)
    flight: dict[str, Request] = field(default_factory=dict)
    """Questions that were not sent yet, and those that were, by the number of their parcel."""

    _failures: int = 0
    """Since the last answer."""

    _failing: float = 0.0
    """When the first of them was."""

    _back: float = float("-inf")
    """When the post came back."""

    def run(self, first: Iterable[Request]) -> Iterator[Request]:
        """Carry out these and all that follow from them; yields each when it is over. Others under way go on."""
        wanted = list(first)
        self.waiting.extend(wanted)
        left = {id(request): request for request in wanted}
        while left:
            over = self.look()
            for request, after in over:
                if left.pop(id(request), None) is None:
                    continue
                if after is not None:
                    left[id(after)] = after
                if after is not request:
                    yield request
            if not over:
                time.sleep(self.poll)

    def look(self) -> list[tuple[Request, Request | None]]:
        """Send what can be sent and take in what has come: all that is over, each with what comes after it."""
        over: list[tuple[Request, Request | None]] = []
        try:
            over.extend(self._sent(self.waiting, self.flight))
            asked = time.monotonic()  # answers that come while others are looked at are not late
            over.extend(self._returned(self.flight))
            over.extend(self._expired(self.flight, asked))
        except Unreachable as error:
            self._reconnect(error, sum(each.tries > 0 for each in self.flight.values()))
            for request in reversed([each for each in self.flight.values() if each.tries > 0]):
                request.again, request.arriving = True, False
                request.failures.append("failed")
                self.waiting.appendleft(request)
            self.flight.clear()
        for _, after in over:
            self._failures = 0
            if after is not None:
                self.waiting.append(after)
        return over

    def present(self) -> set[str]:
        """The names of all nodes that are there, as soon as anybody can know."""
        while True:
            try:
                return self.connection.present()
            except Unreachable as error:
                self._reconnect(error, 0)

    def _sent(self, waiting: deque[Request], flight: dict[str, Request]) -> Iterator[tuple[Request, Request | None]]:
        busy, began = {request.client for request in flight.values()}, time.monotonic()
        for request in list(waiting):
            if time.monotonic() - began > SENDING:
                return
            node = self.nodes[request.client]
            if request.client in busy or (node not in self.connection.present() and self._may_return(request)):
                continue
            number = self.connection.send(node, request.ask(), self._allowed(request))
            request.sent = time.monotonic()
            waiting.remove(request)
            if number is None:
                yield request, _given_up(request, "away", AWAY)
            else:
                flight[number] = request
                busy.add(request.client)

    def _returned(self, flight: dict[str, Request]) -> Iterator[tuple[Request, Request | None]]:
        largest = max((request.largest for request in flight.values()), default=0)
        for number, answer in self.connection.collect(list(flight), largest) if flight else ():
            if answer is None:
                flight[number].arriving = True
                continue
            request = flight.pop(number)
            if isinstance(answer, str):
                yield request, _given_up(request, "failed", answer)
                continue
            try:
                yield request, request.answered(answer, time.monotonic() - request.sent)
            except BadMessage as error:
                yield request, _given_up(request, "answered", f"a bad answer: {error}")

    def _expired(self, flight: dict[str, Request], now: float) -> Iterator[tuple[Request, Request | None]]:
        for number, request in list(flight.items()):
            allowed = self._allowed(request)
            if now - request.sent > allowed and not request.arriving:
                del flight[number]
                yield request, _given_up(request, "silent", no_answer(allowed))

    def _allowed(self, request: Request) -> float:
        return self.timeout * (2 if request.again else 1)

    def _may_return(self, request: Request) -> bool:
        """Whether a node that is not there may only be late: it finds the way back when its work is done."""
        return time.monotonic() - self._back < (self.timeout if request.again else min(RETURN, self.timeout))

    def _reconnect(self, error: Unreachable, under_way: int) -> None:
        """Wait for the post; one that comes back and fails at once, over and over, is not waited for."""
        now = time.monotonic()
        self._failing = self._failing if self._failures else now
        self._failures += 1
        if self._failures > ENOUGH and now - self._failing > self.wait:
            raise Unreachable(f"{error}; {self._failures} times without an answer between them")
        log.warning("%s; waiting for it", error)
        if self._failures > 1:
            time.sleep(min(1.0, 10 * self.poll))
        self.connection.reconnect()
        self._back = time.monotonic()
        said = f"{error}; back after {self._back - now:.0f} s, questions asked again: {under_way}"
        log.warning("%s", said)
        self.interruptions.append(said)


def _given_up(request: Request, outcome: Attempt, reason: str) -> Request | None:
    """The same once more, or what comes after it has failed for good."""
    request.failures.append(outcome)
    request.tries, request.arriving, request.again = request.tries - 1, False, False
    return request if request.tries > 0 else request.failed(reason)
