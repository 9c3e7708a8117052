"""Models that a node has handed on sealed, kept until the round is over.

If the next node does not answer, the same model is sealed for another one; the files survive a restart of the node. The
outbox also remembers what the node has answered, because two answers that differ in one thing only can be compared:
which request it trained for each hop, with which nodes it was on routes, and how each model left, sealed or in the
clear. The difference between a model in the clear and the end of its route is the work of the clients behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedrelay.engines.flower.message_bytes import message_from_bytes, message_to_bytes
from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.node.client_state_files import ClientStateFiles
from fedrelay.errors import EngineError
from fedrelay.files import make_folder, write_atomically
from fedrelay.routes.plan import Hop

Departure = Literal["sealed", "in the clear"]
"""How a model leaves the node."""

PRIVATE = 0o600
_DEPARTURES, _ANSWERED = "departures", "answered"


@dataclass(frozen=True)
class Outbox:
    """Files `out-ROUND-ATTEMPT-ROUTE-HOP.safetensors` beside the client state of their run, and `departures/MODEL`."""

    state_files: ClientStateFiles

    def __post_init__(self) -> None:
        self.remove_old_departures()

    def put(self, run: str, hop: Hop, content: Message) -> None:
        """Keep what was handed on, and drop what was handed on in earlier rounds: those are merged."""
        path = self._path(run, hop)
        write_atomically(path, message_to_bytes(content), mode=PRIVATE)
        for old in path.parent.glob("out-*.safetensors"):
            if int(old.stem.split("-")[1]) < hop.round:
                old.unlink(missing_ok=True)

    def get(self, run: str, hop: Hop) -> Message:
        """What was handed on after a hop.

        Raises:
            EngineError: It is no longer there.
        """
        try:
            return message_from_bytes(self._path(run, hop).read_bytes())
        except (OSError, BadMessage):
            raise EngineError(
                "the model of this hop is no longer kept here: the round is over, or it was lost"
            ) from None

    def accept(self, run: str, hop: Hop, plan: tuple[str, ...], request: str) -> None:
        """Remember what a hop is trained on, before it is.

        Args:
            run: The id of the run.
            hop: The hop.
            plan: The nodes of its route.
            request: The digest of everything that the trained model depends on.

        Raises:
            EngineError: The hop was trained on something else, or the route had other nodes.
        """
        attempt = f"{hop.round}-{hop.attempt}"
        wanted = {
            f"nodes-{attempt}": _digest(sorted(set(plan))),
            f"route-{attempt}-{hop.route}": _digest(plan),
            f"hop-{_key(hop)}": request,
        }
        problems = (
            "it was on a route with other nodes in this attempt of the round; nearly equal routes can be compared",
            "this route had its nodes in another order before",
            "it has answered another request for this hop, and a hop has one request only",
        )
        answered = self.state_files.run_folder(run) / _ANSWERED
        if not answered.is_file():
            self.remove_old_departures()
        _remember(answered, wanted, dict(zip(wanted, problems, strict=True)))

    def choose_departure(self, received: str, departure: Departure) -> None:
        """Remember how a model leaves, in all runs: a server chooses the names of runs.

        Args:
            received: The digest of the model that the node has received.
            departure: How the model that it trains from there leaves.

        Raises:
            EngineError: What it trained from the same model has left in the other way before.
        """
        path = self.state_files.folder / _DEPARTURES / received
        if not path.is_file():
            make_folder(path.parent, mode=0o700)
            write_atomically(path, departure.encode(), mode=PRIVATE)
        elif (before := path.read_text()) != departure:
            raise EngineError(f"the model of this hop has left this node {before}, so it never leaves {departure}")
        else:
            os.utime(path)  # days count from the last time

    def remove_old_departures(self) -> None:
        """Forget the departures of models that were not sent for as many days as a run is kept."""
        folder = self.state_files.folder / _DEPARTURES
        for path in folder.iterdir() if folder.is_dir() else ():
            if self.state_files.is_old(path):
                path.unlink(missing_ok=True)

    def _path(self, run: str, hop: Hop) -> Path:
        return self.state_files.run_folder(run) / f"out-{_key(hop)}.safetensors"


def _key(hop: Hop) -> str:
    return f"{hop.round}-{hop.attempt}-{hop.route}-{hop.index}"


def _remember(path: Path, wanted: Mapping[str, str], problems: Mapping[str, str]) -> None:
    """Add entries to a file, unless one of them is there with another value; then raise its problem."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    known = dict(line.split(" ", 1) for line in lines)
    for key, value in wanted.items():
        if known.setdefault(key, value) != value:
            raise EngineError(problems[key])
    if len(known) > len(lines):
        write_atomically(path, "".join(f"{key} {value}\n" for key, value in known.items()).encode(), mode=PRIVATE)


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
