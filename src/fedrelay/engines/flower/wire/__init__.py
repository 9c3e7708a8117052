"""Messages through a Flower SuperLink. Everything that knows Flower from inside is in this folder.

The server side (`server.py`) is what Flower calls a ServerApp process, the node side (`door.py`) a SuperNode; both
speak to an unchanged SuperLink in Flower's own protocol, over TLS. Flower's own SuperNode would start a process for
every message. What is used here is no public interface of Flower, so its version is pinned in pyproject.toml.
"""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from fedrelay.engines.flower.wire.door import LARGEST, Door, Forgotten, Letter, Refused, Unread
from fedrelay.engines.flower.wire.mail import as_parcel
from fedrelay.engines.flower.wire.office import admit, answers, last_seen, reason_of
from fedrelay.engines.flower.wire.server import FlowerPost

__all__ = [
    "LARGEST",
    "Door",
    "FlowerPost",
    "Forgotten",
    "Letter",
    "Refused",
    "Unread",
    "admit",
    "answers",
    "as_parcel",
    "last_seen",
    "reason_of",
]
