"""Hands out messages again that did not arrive."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

MOST_REPEATS = 3
"""How often a delivery is repeated. A request that kills the node that reads it must not come forever."""


@dataclass
class Delivery:
    """Messages that were handed out, as sent; whether they arrived is not known yet."""

    answer: bytes
    expires: float
    """When nobody waits for replies any more, by the clock of who sent them."""

    name: str = field(default_factory=lambda: token_hex(8))
    repeats: int = 0


class Redelivery:
    """What each receiver was handed last, as long as it may not have arrived."""

    def __init__(self) -> None:
        self.last: dict[str, Delivery] = {}

    def hand_out(
        self, receiver: str, arrived: str, fetch: Callable[[], Any], longest: float = math.inf
    ) -> tuple[bytes, str]:
        """The messages for a receiver, as sent, and the name of their delivery if there are any.

        Args:
            receiver: Who fetches.
            arrived: The name of the last delivery that arrived there.
            fetch: Takes new messages out of the store.
            longest: Seconds after which they are not handed out again, even if they have not expired.
        """
        if (repeated := self._repeated(receiver, arrived)) is not None:
            return repeated.answer, repeated.name
        answer = fetch()
        ends = [message.metadata.created_at + message.metadata.ttl for message in answer.messages_list]
        delivery = Delivery(answer.SerializeToString(), min(max(ends, default=0.0), time.time() + longest))
        if not ends:
            return delivery.answer, ""
        self._forget_expired()
        self.last[receiver] = delivery
        return delivery.answer, delivery.name

    def forget(self, receiver: str) -> None:
        """The receiver has what it was handed last: it has replied."""
        self.last.pop(receiver, None)

    def _repeated(self, receiver: str, arrived: str) -> Delivery | None:
        """What was handed out last, if it has not arrived and is still of use."""
        delivery = self.last.get(receiver)
        if delivery is None:
            return None
        if delivery.name == arrived or delivery.repeats == MOST_REPEATS or time.time() > delivery.expires:
            self.forget(receiver)
            return None
        delivery.repeats += 1
        return delivery

    def _forget_expired(self) -> None:
        """Runs that have ended fetch nothing more, so what they were handed last would stay for ever."""
        now = time.time()
        for receiver, delivery in list(self.last.items()):
            if now > delivery.expires:
                self.forget(receiver)
