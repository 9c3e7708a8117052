"""What every node of a real federation has done, from the audit trails of its runs. `fedrelay audit` verifies them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedrelay.engines.flower.audit_entries import AUDIT_FILE
from fedrelay.engines.flower.messages import AUDIT
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.files import read_regular_file

MOST_NOTES = 3
"""Reasons that are shown for one node."""


def node_activity(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """One row for each node, over all runs: samples, hops, requests without a usable model and why, seconds, times."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for row in _rows(folder / AUDIT_FILE):
            if row.get("event") in ("hop", "earlier") and isinstance(row.get("node"), str):
                _count(found.setdefault(row["node"], _new(row["node"])), row)
    for each in found.values():
        each["notes"] = sorted(each["notes"])[:MOST_NOTES]
    return [found[name] for name in sorted(found)]


def _new(name: str) -> dict[str, Any]:
    numbers = {"samples": None, "hops": 0, "failed": 0, "seconds": 0.0}
    return {"name": one_line(name), **numbers, "first": "", "last": "", "notes": set()}


def _count(node: dict[str, Any], row: Mapping[str, Any]) -> None:
    entry = row.get("entry")
    header = entry.get("header") if isinstance(entry, dict) else None
    if row.get("note") or not isinstance(header, dict):
        node["failed"] += 1
        node["notes"].add(one_line(str(row.get("note", "")), 80))
        return
    stated = header.get(AUDIT)
    time = one_line(str(stated.get("time", ""))) if isinstance(stated, dict) else ""
    node["hops"] += 1
    node["samples"] = header.get("samples", node["samples"])
    node["seconds"] += header["seconds"] if isinstance(header.get("seconds"), float) else 0.0
    node["first"], node["last"] = min(node["first"] or time, time), max(node["last"], time)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The lines that can be read: a report shows what there is."""
    found = []
    for line in read_regular_file(path).split(b"\n") if path.is_file() else ():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            found.append(row)
    return found
