"""The audit trail of a federation for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from fedrelay.report.format import NONE, count
from fedrelay.report.terminal.table_shapes import plain_table

_DIGITS = 8
"""Hexadecimal digits of a SHA-256 that are shown."""

_EVENTS = {"start": "the server starts", "withdrawn": "withdrawn from the run"}


def audit_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One row for each line of a trail; the time is UTC, by the node's clock where it has signed it."""
    columns = ("line", "time", "round", "route", "position", "node", "samples", "in", "out", "loss", "note")
    table = plain_table(*columns)
    for row in rows:
        place = [NONE if row.get(name) is None else str(row[name]) for name in ("round", "route", "position")]
        samples = row.get("samples")
        loss = row.get("loss")
        note = row["note"] or _EVENTS.get(row["event"], "" if "entry_sha256" in row else "nothing signed")
        table.add_row(
            str(row["line"]),
            row["time"],
            *place,
            Text(row["node"] or NONE),
            NONE if samples is None else count(samples),
            *((row.get(name) or NONE)[:_DIGITS] for name in ("model_in", "model_out")),
            NONE if loss is None else f"{loss:.4f}",
            Text(note),
        )
    return table
