"""Errands: questions to nodes, many at once, each with an answer in time or a reason why there is none.

A node has one message at a time, so that the time-out counts its own time alone. What comes of an errand may be the
next one, so a chain needs no more than a first hop. When the post comes back after a failure, questions that were
under way are asked again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedrelay.engines.flower.parcel import BadParcel, Parcel
from fedrelay.engines.flower.post import Post, Unreachable

POLL = 0.1
"""Seconds between two looks into the letter-box."""

SMALL = 1 << 20
"""Bytes allowed for what is no model."""

AWAY = "not there"


@dataclass
class Errand:
    """One question to one node, and what is done with the answer or without one."""

    client: int
    ask: Callable[[], Parcel]
    answered: Callable[[Parcel, float], Errand | None]
    """Takes an answer and the seconds it took, and gives the next errand; raises `BadParcel` where the answer is
    not what was asked for."""

    failed: Callable[[str], Errand | None]
    """Takes the reason why there is no good answer."""

    largest: int = SMALL
    """Bytes that an answer may have."""

    tries: int = 1
    sent: float = 0.0


@dataclass(frozen=True)
class Errands:
    """Who carries them out, and how patiently."""

    post: Post
    nodes: Sequence[str]
    """The name of every client's node."""

    timeout: float
    poll: float = POLL

    def run(self, first: Iterable[Errand]) -> Iterator[Errand]:
        """Carry out these and all that follow from them; yields each when it is over."""
        waiting = deque(first)
        flight: dict[str, Errand] = {}
        while waiting or flight:
            over: list[tuple[Errand, Errand | None]] = []
            try:
                over.extend(self._sent(waiting, flight))
                asked = time.monotonic()  # answers that come while others are fetched are not late
                over.extend(self._returned(flight))
                over.extend(self._expired(flight, asked))
            except Unreachable:
                self.post.reconnect()
                waiting.extend(flight.values())
                flight.clear()
            for errand, after in over:
                if after is not None:
                    waiting.append(after)
                if after is not errand:
                    yield errand
            if not over:
                time.sleep(self.poll)

    def _sent(self, waiting: deque[Errand], flight: dict[str, Errand]) -> Iterator[tuple[Errand, Errand | None]]:
        busy = {errand.client for errand in flight.values()}
        for errand in list(waiting):
            if errand.client in busy:
                continue
            number = self.post.send(self.nodes[errand.client], errand.ask(), self.timeout)
            errand.sent = time.monotonic()
            waiting.remove(errand)
            if number is None:
                yield errand, _given_up(errand, AWAY)
            else:
                flight[number] = errand
                busy.add(errand.client)

    def _returned(self, flight: dict[str, Errand]) -> Iterator[tuple[Errand, Errand | None]]:
        largest = max((errand.largest for errand in flight.values()), default=0)
        for number, answer in self.post.collect(list(flight), largest) if flight else ():
            errand = flight.pop(number)
            if isinstance(answer, str):
                yield errand, _given_up(errand, answer)
                continue
            try:
                yield errand, errand.answered(answer, time.monotonic() - errand.sent)
            except BadParcel as error:
                yield errand, _given_up(errand, f"a bad answer: {error}")

    def _expired(self, flight: dict[str, Errand], now: float) -> Iterator[tuple[Errand, Errand | None]]:
        for number, errand in list(flight.items()):
            if now - errand.sent > self.timeout:
                del flight[number]
                yield errand, _given_up(errand, f"no answer: waited {self.timeout:g} s")


def _given_up(errand: Errand, reason: str) -> Errand | None:
    """The same once more, or what comes after it has failed for good."""
    errand.tries -= 1
    return errand if errand.tries > 0 else errand.failed(reason)
