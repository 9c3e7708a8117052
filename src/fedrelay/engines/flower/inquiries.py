"""Inquiries: questions to nodes, many at once, each with an answer in time or a reason why there is none.

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

from fedrelay.engines.flower.parcel import BadParcel, Parcel
from fedrelay.engines.flower.post import Post, Unreachable, no_answer
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
class Inquiry:
    """One question to one node, and what is done with the answer or without one."""

    client: int
    ask: Callable[[], Parcel]
    answered: Callable[[Parcel, float], Inquiry | None]
    """Takes an answer and the seconds it took, and gives the next inquiry; raises `BadParcel` where the answer is
    not what was asked for."""

    failed: Callable[[str], Inquiry | None]
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
class Inquiries:
    """Who carries them out, and how patiently."""

    post: Post
    nodes: Sequence[str]
    """The name of every client's node."""

    timeout: float
    poll: float = POLL
    wait: float = 60.0
    """Seconds after which a post that fails again and again is given up."""

    interruptions: list[str] = field(default_factory=list)
    """How often the post failed and came back, a line for each time."""

    waiting: deque[Inquiry] = field(default_factory=deque)
    flight: dict[str, Inquiry] = field(default_factory=dict)
    """Questions that were not sent yet, and those that were, by the number of their parcel."""

    _failures: int = 0
    """Since the last answer."""

    _failing: float = 0.0
    """When the first of them was."""

    _back: float = float("-inf")
    """When the post came back."""

    def run(self, first: Iterable[Inquiry]) -> Iterator[Inquiry]:
        """Carry out these and all that follow from them; yields each when it is over. Others under way go on."""
        wanted = list(first)
        self.waiting.extend(wanted)
        left = {id(inquiry): inquiry for inquiry in wanted}
        while left:
            over = self.look()
            for inquiry, after in over:
                if left.pop(id(inquiry), None) is None:
                    continue
                if after is not None:
                    left[id(after)] = after
                if after is not inquiry:
                    yield inquiry
            if not over:
                time.sleep(self.poll)

    def look(self) -> list[tuple[Inquiry, Inquiry | None]]:
        """Send what can be sent and take in what has come: all that is over, each with what comes after it."""
        over: list[tuple[Inquiry, Inquiry | None]] = []
        try:
            over.extend(self._sent(self.waiting, self.flight))
            asked = time.monotonic()  # answers that come while others are looked at are not late
            over.extend(self._returned(self.flight))
            over.extend(self._expired(self.flight, asked))
        except Unreachable as error:
            self._reconnect(error, sum(each.tries > 0 for each in self.flight.values()))
            for inquiry in reversed([each for each in self.flight.values() if each.tries > 0]):
                inquiry.again, inquiry.arriving = True, False
                inquiry.failures.append("failed")
                self.waiting.appendleft(inquiry)
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
                return self.post.present()
            except Unreachable as error:
                self._reconnect(error, 0)

    def _sent(self, waiting: deque[Inquiry], flight: dict[str, Inquiry]) -> Iterator[tuple[Inquiry, Inquiry | None]]:
        busy, began = {inquiry.client for inquiry in flight.values()}, time.monotonic()
        for inquiry in list(waiting):
            if time.monotonic() - began > SENDING:
                return
            node = self.nodes[inquiry.client]
            if inquiry.client in busy or (node not in self.post.present() and self._may_return(inquiry)):
                continue
            number = self.post.send(node, inquiry.ask(), self._allowed(inquiry))
            inquiry.sent = time.monotonic()
            waiting.remove(inquiry)
            if number is None:
                yield inquiry, _given_up(inquiry, "away", AWAY)
            else:
                flight[number] = inquiry
                busy.add(inquiry.client)

    def _returned(self, flight: dict[str, Inquiry]) -> Iterator[tuple[Inquiry, Inquiry | None]]:
        largest = max((inquiry.largest for inquiry in flight.values()), default=0)
        for number, answer in self.post.collect(list(flight), largest) if flight else ():
            if answer is None:
                flight[number].arriving = True
                continue
            inquiry = flight.pop(number)
            if isinstance(answer, str):
                yield inquiry, _given_up(inquiry, "failed", answer)
                continue
            try:
                yield inquiry, inquiry.answered(answer, time.monotonic() - inquiry.sent)
            except BadParcel as error:
                yield inquiry, _given_up(inquiry, "answered", f"a bad answer: {error}")

    def _expired(self, flight: dict[str, Inquiry], now: float) -> Iterator[tuple[Inquiry, Inquiry | None]]:
        for number, inquiry in list(flight.items()):
            allowed = self._allowed(inquiry)
            if now - inquiry.sent > allowed and not inquiry.arriving:
                del flight[number]
                yield inquiry, _given_up(inquiry, "silent", no_answer(allowed))

    def _allowed(self, inquiry: Inquiry) -> float:
        return self.timeout * (2 if inquiry.again else 1)

    def _may_return(self, inquiry: Inquiry) -> bool:
        """Whether a node that is not there may only be late: it finds the way back when its work is done."""
        return time.monotonic() - self._back < (self.timeout if inquiry.again else min(RETURN, self.timeout))

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
        self.post.reconnect()
        self._back = time.monotonic()
        said = f"{error}; back after {self._back - now:.0f} s, questions asked again: {under_way}"
        log.warning("%s", said)
        self.interruptions.append(said)


def _given_up(inquiry: Inquiry, outcome: Attempt, reason: str) -> Inquiry | None:
    """The same once more, or what comes after it has failed for good."""
    inquiry.failures.append(outcome)
    inquiry.tries, inquiry.arriving, inquiry.again = inquiry.tries - 1, False, False
    return inquiry if inquiry.tries > 0 else inquiry.failed(reason)
