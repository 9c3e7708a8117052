"""The lines of a run's records: what each must hold, and the checksums that tell whether it is as it was written.

Lines are JSON. Checksums are in a file of their own, because equal runs have equal lines; it has one line for each
round up to the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.files import read_regular_file

Row = dict[str, Any]
"""One line."""

STREAMS: dict[str, tuple[str, ...]] = {
    "metrics": ("round",),
    "final_metrics": ("round", "last"),
    "ledger": ("round", "s2c", "c2s", "c2c", "bytes", "client_updates", "longest_route"),
    "timings": ("round", "seconds"),
    "forgetting": ("round",),
    "client_metrics": ("round", "client", "train_samples", "held_out"),
    "client_resamples": ("round", "client"),
    "events": ("round", "route", "hop", "client", "what", "done"),
}
"""The streams of a run, and the keys that each of their lines must have."""

CHECKSUMS = "checksums.jsonl"
"""The checksums of lines, apart from them: equal runs have equal lines."""


def why_damaged(stream: str, row: Any, headline: str | None) -> str:
    """What is wrong with a line, such as "without bytes"; empty if it can be read.

    Args:
        stream: The stream of the line.
        row: What the line holds.
        headline: The metric that every line of metrics has; None where it is not known.
    """
    kinds = {} if stream == "metrics" else _VALUES  # callbacks choose the names of metrics
    numbers = row if isinstance(row, dict) else {}
    missing = [name for name in STREAMS[stream] if not kinds.get(name, is_number)(numbers.get(name))]
    missing += [headline] if headline is not None and headline not in numbers else []
    if missing:
        return f"without {', '.join(missing)}"
    odd = [name for name, value in numbers.items() if not kinds.get(name, _is_number_or_none)(value)]
    return f"with an impossible {odd[0]}" if odd else ""


def why_unverified(
    stream: str,
    lines: Sequence[bytes],
    rows: Sequence[Mapping[str, Any]],
    checksums: Sequence[tuple[int, str]],
    saved: int,
    complete: bool,
) -> str:
    """Which line is not as it was written; empty if all are. Rounds after the saved one are still being written."""
    for number, (line, row, (_, expected)) in enumerate(zip(lines, rows, checksums, strict=False), 1):
        if _line_checksum(line) != expected:
            return (
                f"line {number} (round {row['round']}): was changed since it was written, or a line before it is "
                f"missing; its checksum in {CHECKSUMS} differs"
            )
    for number, (round, _) in enumerate(checksums[len(lines) :], len(lines) + 1):
        if round <= saved:
            return f"line {number} (round {round}): is missing; its checksum is in {CHECKSUMS}"
    verified = rows[: len(checksums)]
    for number, row in enumerate(rows[len(checksums) :], len(checksums) + 1):
        after = row["round"] == saved and _may_follow_checkpoint(stream, row, verified, complete)
        if row["round"] <= saved and not after:
            return (
                f"line {number} (round {row['round']}): has no checksum in {CHECKSUMS}, though its round was "
                "saved; it was added later, or checksums are missing"
            )
    return ""


def _may_follow_checkpoint(
    stream: str, row: Mapping[str, Any], verified: Sequence[Mapping[str, Any]], complete: bool
) -> bool:
    """Whether a line of the saved round may come after its checkpoint, which `resume` drops.

    A callback that stops the run after the checkpoint has its model evaluated.
    """
    if stream in ("metrics", "final_metrics", "client_metrics", "client_resamples"):
        return all(each["round"] != row["round"] for each in verified)
    if stream == "ledger":
        return bool(row.get("evaluation"))
    return stream == "events" and not complete


def read_checksums(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, str]]]:
    """Round and checksum of the lines of every stream, up to a checkpoint."""
    return {each: [(int(row["round"]), str(it)) for row in rows for it in row.get(each, ())] for each in STREAMS}


def complete_lines(path: Path) -> list[bytes]:
    """The lines of a file, without a last one that is not complete; none if there is no file."""
    content = read_regular_file(path) if path.exists() else b""
    return [line + b"\n" for line in content.split(b"\n")[:-1]]


def readable_rows(lines: Sequence[bytes], flushed: int) -> list[Any]:
    """What lines hold, up to the first one that a loss of power has left in part.

    Args:
        lines: The lines of a file.
        flushed: How many of them were flushed to disk with a checkpoint, at least.

    Raises:
        ValueError: A line that was flushed is not JSON.
    """
    rows: list[Any] = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            if len(rows) < flushed:
                raise
            break
    return rows


def _line_checksum(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def note_checksum(checksums: dict[int, dict[str, list[str]]], stream: str, row: Mapping[str, Any], line: bytes) -> None:
    """Add the checksum of a line to those of its round."""
    checksums.setdefault(int(row["round"]), {}).setdefault(stream, []).append(_line_checksum(line))


def checksum_lines(checksums: Mapping[int, Mapping[str, Sequence[str]]]) -> bytes:
    """One line for each round, always in the same order."""
    rounds = ((round, checksums[round]) for round in sorted(checksums))
    return b"".join(
        json_line({"round": round, **{stream: found[stream] for stream in STREAMS if stream in found}})
        for round, found in rounds
    )


def json_line(value: Mapping[str, Any]) -> bytes:
    """A value as a line of a file."""
    return (json.dumps(value) + "\n").encode()


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _are_known_or_none(values: Mapping[str, Any]) -> bool:
    return all(map(_is_number_or_none, values.values()))


def is_text(value: Any) -> bool:
    """Whether a value of JSON is text."""
    return isinstance(value, str)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(is_number(each) for each in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


_VALUES: dict[str, Callable[[Any], bool]] = {
    "payloads": lambda value: isinstance(value, dict) and all(is_number(each) for each in value.values()),
    "routes": lambda value: isinstance(value, list) and all(_are_numbers(route) for route in value),
    "nodes": lambda value: isinstance(value, list) and all(map(_are_texts, value)),
    "matrix": lambda value: isinstance(value, list) and all(_are_numbers(row) for row in value),
    "clients": _are_numbers,
    "unanswered": _are_numbers,
    "what": is_text,
    "name": is_text,
    "metric": is_text,
    "not_evaluated": is_text,
    "evaluation": lambda value: isinstance(value, bool),
    **dict.fromkeys(
        ("scores", "fine_tuned", "test", "last", "best"),
        lambda value: isinstance(value, dict) and _are_known_or_none(value),
    ),
    "values": lambda value: isinstance(value, list) and all(map(_is_number_or_none, value)),
    "done": is_text,
    "node": is_text,
    "started": is_text,
    "ended": is_text,
    "handover": is_text,
    "merges": lambda value: isinstance(value, bool),
    "slots": lambda value: isinstance(value, list) and all(_is_number_or_none(each) for each in value),
    "forgetting": lambda value: value is None or _are_numbers(value),
}
"""Key of a line → what its value must be; all other values are numbers or None."""
