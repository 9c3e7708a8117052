"""Messages through a Flower SuperLink. Everything that knows Flower from inside is in this folder.

The server side (`server.py`) is what Flower calls a ServerApp process, the node side (`door.py`) a SuperNode; both
speak to an unchanged SuperLink in Flower's own protocol, over TLS. Flower's own SuperNode would start a process for
every message. What is used here is no public interface of Flower, so its version is pinned in pyproject.toml.
"""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from fedrelay.engines.flower.wire.encoding import from_flower
from fedrelay.engines.flower.wire.node_client import (
    LARGEST,
    Letter,
    NodeClient,
    RegistrationRefused,
    UnknownNode,
    UnreadableMessage,
)
from fedrelay.engines.flower.wire.server_client import FlowerConnection
from fedrelay.engines.flower.wire.superlink_api import admit, answers, last_seen, reason_of

__all__ = [
    "LARGEST",
    "FlowerConnection",
    "Letter",
    "NodeClient",
    "RegistrationRefused",
    "UnknownNode",
    "UnreadableMessage",
    "admit",
    "answers",
    "from_flower",
    "last_seen",
    "reason_of",
]
