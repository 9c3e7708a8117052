"""Which turns of a client count: the server's memory of what its nodes keep.

A node keeps what its client has after a turn under the number of that turn. The server keeps the number of the turn
that it accepted last, beside its own checkpoints. So it says with every message which of a node's files is meant, and
which are no longer needed by anybody.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from fedrelay.local.client_state import ClientStateStore

_TURN = "turn"
_SPREAD = 1 << 24
"""Nanoseconds by which numbers may run ahead of the clock, at random."""


@dataclass(frozen=True)
class StateVersion:
    """The turn after which a client has what it keeps; or several, that set out from the same."""

    number: int = 0
    """0: nothing yet."""

    parts: tuple[int, ...] = ()
    """What it set out from, then the turns whose changes add up."""


class StateVersions:
    """StateVersions are numbered by the clock, so that numbers grow from run to run."""

    def __init__(self, client_states: ClientStateStore, *, count: bool = True) -> None:
        self.client_states, self.count = client_states, count
        """Whether it matters which turns count: not where clients keep nothing."""
        self.round = 0
        self.now: dict[int, StateVersion] = {}
        """What counts while models travel, of clients that were asked already."""
        self.changed: set[int] = set()
        self.wave: dict[int, list[tuple[int, int]]] = {}
        """Accepted turns that are not joined yet: (route, number)."""
        self.ahead: dict[int, StateVersion] = {}
        """What clients have after turns of a model that is not home yet; only that model can meet them."""
        self.settled: dict[int, int] = {}
        self.last = 0

    def next(self) -> int:
        """The number of a new turn; where the clock was set back, one that a copy of the run would not choose too."""
        now = time.time_ns()
        self.last = now if now > self.last else self.last + 1 + secrets.randbelow(_SPREAD)
        return self.last

    def begin(self, round: int) -> None:
        """Models set off; turns of an attempt before that were not kept count for nothing."""
        self.round, self.now, self.changed, self.wave = round, {}, set(), {}

    def header(self, client: int, number: int) -> dict[str, Any]:
        """What a node is told about a turn of this number."""
        kept = self._kept(client)
        return {
            "turn": number,
            "state": kept.number,
            "parts": list(kept.parts),
            "settled": self.settled.get(client, 0),
        }

    def accept(self, client: int, route: int, number: int) -> None:
        """A turn counts, as soon as it is joined with others of its wave."""
        if not self.count:
            return
        self.wave.setdefault(client, []).append((route, number))

    def accept_alone(self, client: int, route: int, number: int) -> None:
        """A turn counts at once."""
        self.accept(client, route, number)
        self.join()

    def hold(self, client: int, route: int, number: int) -> None:
        """A turn counts if the model comes home."""
        if self.count:
            self.ahead[client] = StateVersion(number)

    def home(self, clients: Collection[int], *, counts: bool = True) -> None:
        """The model that was at these clients is home, or was given up."""
        for client in self.ahead.keys() & clients:
            kept = self.ahead.pop(client)
            if counts:
                self.now[client] = kept
                self.changed.add(client)

    def join(self) -> None:
        """After a turn, or a wave of them: of a client that was visited twice the changes add up."""
        for client, versions in self.wave.items():
            numbers = [number for _, number in sorted(versions)]
            before = self._kept(client)
            joined = (
                StateVersion(self.next(), (before.number, *numbers)) if len(numbers) > 1 else StateVersion(numbers[0])
            )
            self.now[client] = joined
            self.changed.add(client)
        self.wave = {}

    def keep(self) -> None:
        """The round counts: what its clients have goes into the next checkpoint."""
        for client in sorted(self.changed):
            kept = self.now[client]
            self.client_states.put(self.round, client, {_TURN: torch.tensor([kept.number, *kept.parts])})
        self.changed = set()

    def _kept(self, client: int) -> StateVersion:
        if client in self.ahead:
            return self.ahead[client]
        if client not in self.now:
            kept = self.now[client] = self._stored(client)
            # Nobody goes back behind what is on disk already, or, without a run folder, behind the last round.
            if self.client_states.folder is None or client not in self.client_states.changed:
                self.settled[client] = min((kept.number, *(part for part in kept.parts if part)))
        return self.now[client]

    def _stored(self, client: int) -> StateVersion:
        tensors = self.client_states.get(client)
        if _TURN not in tensors:
            return StateVersion()
        number, *parts = tensors[_TURN].tolist()
        self.last = max(self.last, number, *parts)  # numbers grow even if the clock was set back
        return StateVersion(number, tuple(parts))
