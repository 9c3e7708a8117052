"""The paths and headers of calls that send, fetch and wait for messages, for our clients and our SuperLink."""

from __future__ import annotations

NODE_WAITS, SERVER_WAITS = "/v1/fleet/wait-for-message", "/v1/runtime/wait-for-message"
"""Paths at which nodes and servers wait."""

NODE_SENDS, NODE_FETCHES = "/v1/fleet/push-messages", "/v1/fleet/pull-messages"
SERVER_SENDS, SERVER_FETCHES = "/v1/runtime/push-messages", "/v1/runtime/pull-messages"
"""Paths of Flower's at which messages are announced, or sent whole if they are small, and fetched."""

NODE_REPORTS, SERVER_LOOKS = "/v1/fleet/report-progress", "/v1/runtime/progress-of-nodes"
"""Paths at which nodes say how far they are with a hop, and where the server reads that."""

LONGEST_REPORT = 200
"""Characters of what a node says."""

RECEIVER = "fedrelay-receiver"
"""The header of an announcement that says who is to be told of it."""

DELIVERY = "fedrelay-delivery"
"""The header that names what was handed out. Who fetches again says which delivery arrived last."""

TIME = "fedrelay-time"
"""The header of every answer that says what time it is at the SuperLink, in seconds since 1970."""

LARGEST_REQUEST = 8 * 10**6
"""Bytes of any request; parts of larger messages have fewer. Who fetches a message that is sent whole relies on it."""


def node_receiver(node: int) -> str:
    """What a node is called in the header `RECEIVER`."""
    return f"node {node}"


def run_receiver(run: int) -> str:
    """What the server with this run is called in the header `RECEIVER`."""
    return f"run {run}"
