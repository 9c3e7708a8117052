"""Messages through a Flower SuperLink. Everything that uses Flower's internals is in this folder.

The server (`server_side_connection.py`) is what Flower calls a ServerApp process, the node
(`node_side_connection.py`) a SuperNode. Both speak Flower's own protocol over TLS to its SuperLink. Flower's
own SuperNode would start a process for every message. The interfaces used here are not public, so pyproject.toml pins
the version of Flower.
"""

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
