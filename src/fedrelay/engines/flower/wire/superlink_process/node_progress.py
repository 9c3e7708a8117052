"""How far nodes are with their hops, as they say, and when they last said so."""

from __future__ import annotations

import json
import time

from fedrelay.engines.flower.wire.superlink_process.protocol import LONGEST_REPORT

KEPT = 86_400.0
"""Seconds after which what a node said is forgotten."""


class NodeProgress:
    """The last report of every node."""

    def __init__(self) -> None:
        self.reports: dict[str, tuple[float, str]] = {}

    def note(self, node: str, text: str) -> None:
        """Note that a node has made progress."""
        now = time.monotonic()
        self.reports = {name: each for name, each in self.reports.items() if now - each[0] < KEPT}
        self.reports[node] = (now, text[:LONGEST_REPORT])

    def as_json(self) -> str:
        """Receiver → how many seconds ago it reported, and what."""
        now = time.monotonic()
        return json.dumps({node: [round(now - at, 3), text] for node, (at, text) in self.reports.items()})
