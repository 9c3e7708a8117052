"""Rows as text that spreadsheets and other programs read."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text; columns in the order in which they first appear."""
    text = io.StringIO()
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is disarmed."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
