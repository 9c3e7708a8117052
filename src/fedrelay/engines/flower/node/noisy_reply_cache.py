"""Replies with noise, kept for requests that arrive a second time.

Noise is drawn fresh for every reply, and every reply is charged to the owner's budget. A reply can be lost on the way,
and a run can be resumed from a checkpoint: then the server sends a request again. A second reply with other noise would
reveal more about the samples. So the node keeps its replies and sends the same one again, which reveals nothing new and
costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.node.client_state_files import ClientStateFiles
from fedrelay.files import write_atomically

REMEMBERED = 16
"""Replies kept for each run. A request older than that is answered with new noise and charged again."""

_BOOKKEEPING = frozenset({"request", "oldest_needed"})
"""Fields that name files of client state. They do not enter the computation, and they change on resume."""

log = logging.getLogger(__name__)


class NoisyReplyCache:
    """Files `answer-DIGEST.safetensors` beside the client state of their run; they are removed together."""

    def __init__(self, state_files: ClientStateFiles) -> None:
        self.state_files = state_files

    def get(self, run: str, request: Message) -> Message | None:
        """The reply to an identical request; None if there was none, or if it is no longer kept or readable."""
        path = self._path(run, request)
        try:
            with safe_open(path, "np") as file:
                header = json.loads(file.metadata()["header"])
                return Message(header, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            log.warning("%s: is damaged; the request is answered and charged anew", path)
            return None

    def put(self, run: str, request: Message, reply: Message) -> None:
        """Keep a reply; the oldest ones make room."""
        path = self._path(run, request)
        write_atomically(path, save(dict(reply.arrays), {"header": json.dumps(dict(reply.header))}))
        kept = sorted(path.parent.glob("answer-*.safetensors"), key=lambda each: each.stat().st_mtime_ns)
        for old in kept[:-REMEMBERED]:
            old.unlink(missing_ok=True)

    def _path(self, run: str, request: Message) -> Path:
        return self.state_files.run_folder(run) / f"answer-{digest(request)}.safetensors"


def digest(request: Message) -> str:
    """A digest of everything in a request that its reply depends on: run, hop, model, method with all options, …"""
    header = {name: value for name, value in request.header.items() if name not in _BOOKKEEPING}
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(request.arrays):
        array = request.arrays[name]
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.tobytes())
    return found.hexdigest()
