"""Which version of its client state each node should use.

A node stores its client state after a hop in a file named by the id of the request. The server remembers, in its
checkpoints, the id of the last hop it accepted. Every request names the version to start from and the oldest version
that may still be needed. So a round that is repeated or resumed reads the state from before it, and a hop that the
server never accepted leaves no trace. If two routes visit a client in the same step, the request names both versions
and the node adds up their changes.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from typing import Any

import torch

from fedrelay.errors import RunFolderError
from fedrelay.local.client_state import ClientStateStore

_VERSION = "version"
_SPREAD = 1 << 24
"""Nanoseconds by which ids may run ahead of the clock, at random."""


StateVersion = tuple[int, ...]
"""The id of a version of a client's state; 0 is the initial one.

If it merges several hops, the id of their common start and the ids of the versions whose changes add up follow.
"""


class ClientStateVersions:
    """The current version of every client. Ids come from the clock, so they grow from run to run."""

    def __init__(self, client_states: ClientStateStore, *, enabled: bool = True) -> None:
        self.client_states, self.enabled = client_states, enabled
        self.round = 0
        self.current: dict[int, StateVersion] = {}
        self.changed: set[int] = set()
        self.accepted: dict[int, list[tuple[int, int]]] = {}
        """Client → (route, id) of accepted hops that are not merged yet."""
        self.until_arrival: dict[int, StateVersion] = {}
        """Versions that count only if the model of the route arrives; only that model can meet them."""
        self.oldest_needed: dict[int, int] = {}
        self.last_id = 0

    def new_id(self) -> int:
        """A new id. If the clock was set back, one that a copy of this run would not choose too."""
        now = time.time_ns()
        self.last_id = now if now > self.last_id else self.last_id + 1 + secrets.randbelow(_SPREAD)
        return self.last_id

    def start_round(self, round: int) -> None:
        """Forget hops of an earlier attempt that were not committed."""
        self.round, self.current, self.changed, self.accepted = round, {}, set(), {}

    def request_fields(self, client: int, id: int) -> dict[str, Any]:
        """What a request with this id tells the node about its state."""
        state, *merged_from = self._current(client)
        return {
            "request": id,
            "state": state,
            "merged_from": merged_from,
            "oldest_needed": self.oldest_needed.get(client, 0),
        }

    def accept(self, client: int, route: int, id: int) -> None:
        """A hop counts as soon as the hops of its step are merged."""
        if self.enabled:
            self.accepted.setdefault(client, []).append((route, id))

    def accept_now(self, client: int, route: int, id: int) -> None:
        """A hop counts at once."""
        self.accept(client, route, id)
        self.merge_accepted()

    def accept_on_arrival(self, client: int, route: int, id: int) -> None:
        """A hop counts when the model of its route arrives."""
        if self.enabled:
            self.until_arrival[client] = (id,)

    def route_ended(self, clients: Collection[int], *, arrived: bool = True) -> None:
        """The model that visited these clients has arrived, or was given up."""
        for client in self.until_arrival.keys() & clients:
            version = self.until_arrival.pop(client)
            if arrived:
                self._set(client, version)

    def merge_accepted(self) -> None:
        """Make accepted hops the current versions; several hops of one client are merged in the order of routes."""
        for client, hops in self.accepted.items():
            ids = tuple(id for _, id in sorted(hops))
            start = self._current(client)[0]
            self._set(client, (self.new_id(), start, *ids) if len(ids) > 1 else ids)
        self.accepted = {}

    def commit(self) -> None:
        """The round counts: write the current versions to the next checkpoint."""
        for client in sorted(self.changed):
            self.client_states.put(self.round, client, {_VERSION: torch.tensor(self.current[client])})
        self.changed = set()

    def _set(self, client: int, version: StateVersion) -> None:
        self.current[client] = version
        self.changed.add(client)

    def _current(self, client: int) -> StateVersion:
        if client in self.until_arrival:
            return self.until_arrival[client]
        if client not in self.current:
            version = self.current[client] = self._stored(client)
            # A resume goes back to what is on disk, or, without a run folder, to the last round, and no further.
            if self.client_states.folder is None or client not in self.client_states.changed:
                id, *merged_from = version
                self.oldest_needed[client] = min((id, *filter(None, merged_from)))
        return self.current[client]

    def _stored(self, client: int) -> StateVersion:
        tensors = self.client_states.get(client)
        if "turn" in tensors:
            raise RunFolderError("this run was started by an older FedRelay and cannot be resumed; start it again")
        if _VERSION not in tensors:
            return (0,)
        version = tuple(tensors[_VERSION].tolist())
        self.last_id = max(self.last_id, *version)  # ids grow even if the clock was set back
        return version
