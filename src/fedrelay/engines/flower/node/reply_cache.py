"""Replies that are kept for requests that arrive a second time: those with noise, and those that took long.

Noise is drawn fresh for every reply, and every reply is charged to the owner's budget. A reply can be lost on the way,
and a run can be resumed from a checkpoint: then the server sends a request again. A second reply with other noise would
reveal more about the samples. So the node keeps its replies and sends the same one again, which reveals nothing new and
costs nothing. The last reply that took long is kept, too, so that hours of work are not done twice.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fedrelay.engines.flower.message_bytes import message_digest, message_from_bytes, message_to_bytes
from fedrelay.engines.flower.messages import DELIVERY_FIELDS, BadMessage, Message
from fedrelay.engines.flower.node.client_state_files import ClientStateFiles
from fedrelay.files import keep_latest, mark_as_latest, write_atomically

REMEMBERED = 16
"""Replies kept for each run. A request older than that is answered with new noise and charged again."""

_BOOKKEEPING = DELIVERY_FIELDS | {"request", "oldest_needed"}
"""Fields that name files of client state or concern the delivery. They do not enter the computation, and change."""

log = logging.getLogger(__name__)


class ReplyCache:
    """Files `answer-DIGEST.safetensors` beside the client state of their run; they are removed together."""

    def __init__(self, state_files: ClientStateFiles) -> None:
        self.state_files = state_files

    def get(self, run: str, key: str) -> Message | None:
        """The reply to an identical request; None if there was none, or if it is no longer kept or readable.

        Args:
            run: The id of the run.
            key: A digest of everything that the reply depends on.
        """
        path = self._path(run, key)
        try:
            return message_from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, BadMessage):
            log.warning("%s: is damaged; the request is answered and charged anew", path)
            return None

    def put(self, run: str, key: str, reply: Message, most: int = REMEMBERED) -> None:
        """Keep a reply, and `most` with it; the oldest ones make room."""
        path = self._path(run, key)
        write_atomically(path, message_to_bytes(reply), mode=0o600)
        kept = list(path.parent.glob("answer-*.safetensors"))
        mark_as_latest(path, kept)
        keep_latest(kept, most)

    def _path(self, run: str, key: str) -> Path:
        return self.state_files.run_folder(run) / f"answer-{key}.safetensors"


def digest(request: Message) -> str:
    """A digest of everything in a request that its reply depends on: run, hop, model, method with all options, …"""
    return message_digest(request, without=_BOOKKEEPING)
