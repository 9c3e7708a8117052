"""Models that a node has handed on sealed, kept until the round is over.

If the next node does not answer, the same model is sealed for another one; the files survive a restart of the node. The
outbox also remembers how each hop left the node: sealed or in the clear. The server must never get both, because the
difference between a model in the clear and the end of its route is the work of the clients behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedrelay.engines.flower.message_bytes import message_from_bytes, message_to_bytes
from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.node.client_state_files import ClientStateFiles
from fedrelay.errors import EngineError
from fedrelay.files import write_atomically
from fedrelay.routes.plan import Hop

Way = Literal["sealed", "in the clear"]
"""How a model leaves the node."""

PRIVATE = 0o600
_WAYS = "ways"


@dataclass(frozen=True)
class Outbox:
    """Files `out-ROUND-ATTEMPT-ROUTE-HOP.safetensors` beside the client state of their run."""

    state_files: ClientStateFiles

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

    def choose_way(self, run: str, hop: Hop, way: Way) -> None:
        """Remember how the model of a hop leaves.

        Raises:
            EngineError: It has left in the other way before.
        """
        path, key = self.state_files.run_folder(run) / _WAYS, _key(hop)
        ways = dict(line.rsplit(" ", 1) for line in path.read_text().splitlines()) if path.is_file() else {}
        letter = way[0]
        if ways.setdefault(key, letter) != letter:
            before = "sealed" if ways[key] == "s" else "in the clear"
            raise EngineError(f"the model of this hop has left this node {before}, so it never leaves {way}")
        write_atomically(path, "".join(f"{each} {chosen}\n" for each, chosen in ways.items()).encode(), mode=PRIVATE)

    def _path(self, run: str, hop: Hop) -> Path:
        return self.state_files.run_folder(run) / f"out-{_key(hop)}.safetensors"


def _key(hop: Hop) -> str:
    return f"{hop.round}-{hop.attempt}-{hop.route}-{hop.index}"
