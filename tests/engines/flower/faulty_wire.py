"""A wire in memory, on a simulated clock, that loses, repeats, delays, exchanges and replays messages as it is told to.

It writes down what happens. `check_history` compares that with a small model of what may happen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import SimpleNamespace
from typing import Any, Literal, get_args

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable
from fedrelay.routes.plan import Hop

Fate = Literal[
    "fine",
    "request lost",
    "request late",
    "request very late",
    "request twice",
    "node dies before",
    "node dies after",
    "reply lost",
    "reply late",
    "reply very late",
    "reply altered",
    "reply replayed",
    "reply exchanged",
    "node offline",
    "superlink lost",
]
"""What becomes of a request to a node."""

FATES: tuple[Fate, ...] = get_args(Fate)
TIMEOUT = 5.0
LATE, VERY_LATE, OFFLINE = 1.0, TIMEOUT + 2.0, 3.0
ANSWERING = 0.5
"""Seconds until the reply of a node is there."""

Event = tuple[Any, ...]
"""("round", number), ("sent", node, id, hop, state), ("trained", node, id), ("accepted", client, id) or
("committed", number)."""


@dataclass
class FaultyWire:
    """A connection to nodes in this process. Requests get the fates one after the other, and then are fine."""

    services: dict[str, Any]
    restart: Callable[[str], None]
    """Has a node die and come back with what it has on disk."""

    fates: Sequence[Fate] = ()
    history: list[Event] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.wait_for_replies)
        self.numbers, self.order, self.left = count(), count(), list(self.fates)
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.arrived: dict[str, Message] = {}
        self.last_replies: dict[str, Message] = {}
        self.offline_until: dict[str, float] = {}
        self.is_lost, self.closed = False, False

    def online(self) -> set[str]:
        return {name for name in self.services if self.offline_until.get(name, 0.0) <= self.now}

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        if node not in self.online():
            return None
        number, fate = str(next(self.numbers)), self.left.pop(0) if self.left else "fine"
        header = message.header
        if header["kind"] == "hop":
            self.history.append(("sent", node, header["request"], Hop(*header["hop"]), header["state"]))
        match fate:
            case "request lost":
                pass
            case "superlink lost":
                self.is_lost = True
                self._later(LATE, lambda: self._ask(node, message))  # a node that has the request goes on
            case "node offline":
                self.offline_until[node] = self.now + OFFLINE
                self._later(OFFLINE, lambda: self._reply(number, node, message, "fine"))
            case "request late" | "request very late":
                seconds = LATE if fate == "request late" else VERY_LATE
                self._later(seconds, lambda: self._reply(number, node, message, "fine"))
            case _:
                self._reply(number, node, message, fate)
        return number

    def receive(self, ids: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str | None]]:
        if self.is_lost:
            raise SuperLinkUnreachable("the SuperLink is gone")
        for number in ids:
            if number in self.arrived:
                yield number, self.arrived.pop(number)

    def signs_of_life(self) -> dict[str, object]:
        return {}

    def wait_for_replies(self, pause: float) -> None:
        self.now += max(pause, 0.125)
        while self.due and self.due[0][0] <= self.now:
            heapq.heappop(self.due)[2]()

    def reconnect(self) -> None:
        self.is_lost = False
        self.arrived.clear()

    def close(self) -> None:
        self.closed = True

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.due, (self.now + seconds, next(self.order), act))

    def _ask(self, node: str, message: Message) -> Message:
        reply = self.services[node].respond(message)
        if reply.header["kind"] == "hop":
            self.history.append(("trained", node, message.header["request"]))
        return reply

    def _reply(self, number: str, node: str, message: Message, fate: Fate) -> None:
        """Have a node answer, and its reply arrive in one way or another."""
        if fate == "node dies before":
            self.restart(node)
        reply = self._ask(node, message)
        if fate == "node dies after":
            self.restart(node)
            reply = self._ask(node, message)  # the SuperLink hands it out again
        if fate == "request twice":
            again = self._ask(node, message)
            assert again.header["kind"] in ("failed", reply.header["kind"])
        others = [each for name, each in self.last_replies.items() if name != node]
        if fate == "reply replayed":
            reply = self.last_replies.get(node, reply)
        elif fate == "reply exchanged":
            reply = others[-1] if others else reply
        elif fate == "reply altered":
            reply = replace(reply, header={**reply.header, "samples": 10**6})
        self.last_replies[node] = reply
        seconds = {"reply late": LATE, "reply very late": VERY_LATE}.get(fate, ANSWERING)
        if fate != "reply lost":
            self._later(seconds, lambda: self.arrived.setdefault(number, reply))


def check_history(history: Sequence[Event], *, rounds: int, clients: int, complete: bool) -> None:
    """Check a run against what may happen.

    - Requests belong to the round under way, and name the state that the client's last accepted hop left.
    - A request that is repeated is the same.
    - A reply is accepted only if that node trained that request in this round, once for each hop, in the order of hops.
    - Versions of client state grow, and rounds are committed one after the other.
    - With `complete`, every client's hop of every round was accepted.
    """
    committed, versions, underway = 0, dict.fromkeys(range(clients), 0), 0
    current, accepted = dict(versions), {}
    sent: dict[int, Event] = {}
    trained: set[tuple[str, int]] = set()
    for event in history:
        match event:
            case ("round", number):
                assert number == committed + 1, event
                underway, current, accepted = number, dict(versions), {}
            case ("sent", _, id, hop, state):
                assert hop.round == underway, event
                assert state == current[hop.client], event
                assert sent.setdefault(id, event) == event
            case ("trained", node, id):
                assert sent[id][1] == node, event
                trained.add((node, id))
            case ("accepted", client, id):
                _, node, _, hop, _ = sent[id]
                assert (node, id) in trained, event
                assert (hop.round, hop.client) == (underway, client), event
                assert all(index < hop.index for route, index in accepted if route == hop.route), event
                assert id > current[client], event
                accepted[hop.route, hop.index], current[client] = id, id
            case ("committed", number):
                assert number == underway == committed + 1, event
                assert not complete or len(accepted) == clients, event
                committed, versions = number, dict(current)
    assert committed == rounds
