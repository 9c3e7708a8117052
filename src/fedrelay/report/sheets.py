"""Every figure of a page as a table for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.files import write_atomically
from fedrelay.report.courses import MEASURES
from fedrelay.report.document import Document
from fedrelay.result import COSTS

Row = Mapping[str, Any]


def write_sheets(document: Document, folder: Path) -> list[Path]:
    """One CSV file for each figure that has something to show."""
    written = []
    for name, rows in sheets(document).items():
        if rows:
            path = folder / f"{name}.csv"
            write_atomically(path, as_csv(rows).encode())
            written.append(path)
    return written


def sheets(document: Document) -> dict[str, list[Row]]:
    """The rows of every figure."""
    return {
        "curves": list(_curves(document)),
        "targets": list(_targets(document)),
        "results": list(_results(document)),
        "federation": list(_federation(document)),
        "groups": list(_groups(document)),
        "relay": list(_relay(document)),
        "forgetting": list(_forgetting(document)),
        "communication": list(_communication(document)),
        "faults": [{"name": _name(document, event["method"]), **event} for event in document["events"]],
    }


def as_csv(rows: Sequence[Row]) -> str:
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


def _name(document: Document, method: int) -> str:
    name: str = document["methods"][method]["name"]
    return name


def _curves(document: Document) -> Iterator[Row]:
    for method in document["methods"]:
        course = method["course"]
        for place in range(len(course["round"])):
            row = {"method": method["name"], "seeds": course["seeds"][place]}
            row |= {cost: course[cost][place] for cost in COSTS}
            for measure in MEASURES:
                row |= {f"{measure}_{kind}": course[measure][kind][place] for kind in ("mean", "std")}
            yield row


def _targets(document: Document) -> Iterator[Row]:
    for method in document["methods"]:
        for target in document["targets"]:
            share = f"{target['share']:g}"
            speed_up = method["standing"]["speed_up"].get(share)
            costs = method["standing"]["costs_to"].get(share, {})
            yield {"method": method["name"], "target": target["accuracy"], **costs, "speed_up_in_rounds": speed_up}


def _results(document: Document) -> Iterator[Row]:
    plain = ("client_updates", "longest_chain", "bytes", "virtual_seconds", "seconds")
    for method in document["methods"]:
        standing = method["standing"]
        row = {"method": method["name"]}
        for level in ("accuracy_last", "accuracy"):
            row |= {f"{level}_{kind}": value for kind, value in standing[level].items()}
        states = [run["status"] for run in method["runs"]]
        yield {**row, **{name: standing[name] for name in plain}, **standing["transfers"], "states": " ".join(states)}


def _federation(document: Document) -> Iterator[Row]:
    for number, federation in enumerate(document["federations"]):
        for client, counts in enumerate(federation["counts"]):
            yield {"federation": number, "client": client, **_classes(counts)}


def _groups(document: Document) -> Iterator[Row]:
    for journey in document["journeys"]:
        for number, group in enumerate(journey["mixes"]):
            yield {**_run(document, journey), "group": number, **_classes(group["counts"])}


def _relay(document: Document) -> Iterator[Row]:
    for journey in document["journeys"]:
        for stage in journey["rounds"]:
            slots = stage.get("slots", [None] * len(stage["routes"]))
            for number, (route, slot) in enumerate(zip(stage["routes"], slots, strict=True)):
                where = {"round": stage["round"], "route": number, "relay": stage["relay"], "slot": slot}
                for turn, client in enumerate(route, start=1):
                    yield {**_run(document, journey), **where, "turn": turn, "client": client}


def _forgetting(document: Document) -> Iterator[Row]:
    for journey in document["journeys"]:
        for chain in journey["forgetting"]["chains"]:
            for hop, row in enumerate(chain["matrix"]):
                where = {"round": chain["round"], "hop": hop + 1, "trained_at": chain["clients"][hop]}
                for place, accuracy in enumerate(row):
                    seen = {"samples_of": chain["clients"][place], "accuracy": accuracy}
                    yield {**_run(document, journey), **where, **seen}


def _communication(document: Document) -> Iterator[Row]:
    for method in document["methods"]:
        for counted, values in (("transfers", "transfers"), ("bytes", "bytes"), ("bytes", "payloads")):
            for kind, value in (method["traffic"][values] or {}).items():
                yield {"method": method["name"], "counted": counted, "kind": kind, "value": value}


def _run(document: Document, journey: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": _name(document, journey["method"]), "seed": journey["seed"]}


def _classes(counts: Sequence[int]) -> dict[str, int]:
    return {f"class_{number}": value for number, value in enumerate(counts)}
