"""The time of day as records have it."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """The time by this machine's clock, in UTC with milliseconds: `2026-01-31T12:00:00.000Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
