"""Replies with noise, kept for requests that arrive a second time.

Noise is drawn fresh for every reply, and every reply is charged to the owner's budget. A reply can be lost on the way,
and a run can be resumed from a checkpoint: then the server sends a request again. A second reply with other noise would
reveal more about the samples. So the node keeps its replies and sends the same one again, which reveals nothing new and
costs nothing.
"""

from __future__ import annotations

import logging
from pathlib import Path

from fedrelay.engines.flower.message_bytes import message_digest, message_from_bytes, message_to_bytes
from fedrelay.engines.flower.messages import NONCE, BadMessage, Message
from fedrelay.engines.flower.node.client_state_files import ClientStateFiles
from fedrelay.files import keep_latest, mark_as_latest, write_atomically

REMEMBERED = 16
"""Replies kept for each run. A request older than that is answered with new noise and charged again."""

_BOOKKEEPING = frozenset({"request", "oldest_needed", NONCE})
"""Fields that name files of client state or are random. They do not enter the computation, and they change."""

log = logging.getLogger(__name__)


class NoisyReplyCache:
    """Files `answer-DIGEST.safetensors` beside the client state of their run; they are removed together."""

    def __init__(self, state_files: ClientStateFiles) -> None:
        self.state_files = state_files

    def get(self, run: str, request: Message) -> Message | None:
        """The reply to an identical request; None if there was none, or if it is no longer kept or readable."""
        path = self._path(run, request)
        try:
            return message_from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, BadMessage):
            log.warning("%s: is damaged; the request is answered and charged anew", path)
            return None

    def put(self, run: str, request: Message, reply: Message) -> None:
        """Keep a reply; the oldest ones make room."""
        path = self._path(run, request)
        write_atomically(path, message_to_bytes(reply))
        kept = list(path.parent.glob("answer-*.safetensors"))
        mark_as_latest(path, kept)
        keep_latest(kept, REMEMBERED)

    def _path(self, run: str, request: Message) -> Path:
        return self.state_files.run_folder(run) / f"answer-{digest(request)}.safetensors"


def digest(request: Message) -> str:
    """A digest of everything in a request that its reply depends on: run, hop, model, method with all options, …"""
    return message_digest(request, without=_BOOKKEEPING)
