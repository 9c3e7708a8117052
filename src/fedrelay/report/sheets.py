"""Every figure of a page as a table for other programs, with the columns that the page itself gives.

Where a document leaves something out, a column ending in `_in_all` says how much there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.files import write_atomically
from fedrelay.metrics.curves import speed_up
from fedrelay.report.courses import MEASURES
from fedrelay.report.document import Document
from fedrelay.report.spreadsheet import as_csv
from fedrelay.runtime.result import COSTS

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
        "faults": list(_faults(document)),
    }


def _curves(document: Document) -> Iterator[Row]:
    for method in document["methods"]:
        course = method["course"]
        for place in range(len(course["round"])):
            row = {"method": method["name"], "seeds": course["seeds"][place]}
            row |= {cost: course[cost][place] for cost in COSTS}
            for measure in MEASURES:
                row |= {f"{measure}_{kind}": course[measure][kind][place] for kind in ("mean", "std")}
            yield {**row, "evaluations_in_all": course["evaluated"]}


def _targets(document: Document) -> Iterator[Row]:
    """Factors are against the first method."""
    for method in document["methods"]:
        first = document["methods"][0]
        for place, target in enumerate(document["targets"]):
            before, costs = (each["standing"]["costs_to"][place] for each in (first, method))
            factors = {f"speed_up_{cost}": speed_up(before[cost], costs[cost]) for cost in COSTS}
            where = {"method": method["name"], "target": target["accuracy"]}
            yield {**where, **costs, "compared_with": first["name"], **factors}


def _results(document: Document) -> Iterator[Row]:
    for method in document["methods"]:
        standing = method["standing"]
        row = {"method": method["name"]}
        for level in ("accuracy_last", "accuracy"):
            row |= {f"{level}_{kind}": value for kind, value in standing[level].items()}
        row |= {name: standing[name] for name in ("client_updates", "longest_chain")} | standing["transfers"]
        row |= {name: standing[name] for name in ("bytes", "virtual_seconds", "seconds")}
        states = " ".join(run["status"] for run in method["runs"])
        yield {**row, "runs": len(method["course"]["runs"]), "states": states}


def _federation(document: Document) -> Iterator[Row]:
    for number, federation in enumerate(document["federations"]):
        for client, counts in enumerate(federation["counts"]):
            where = {"federation": number, "client": client, "clients_in_all": federation["clients"]}
            yield {**where, **_classes(counts)}


def _groups(document: Document) -> Iterator[Row]:
    for journey in document["journeys"]:
        for mix in journey["mixes"]:
            members = journey["groups"][mix["group"]] if journey["groups"] else ()
            where = {"group": mix["group"], "clients": " ".join(map(str, members))}
            in_all = {"groups_in_all": journey["groups_in_all"]}
            yield {**_run(document, journey), **where, **in_all, **_classes(mix["counts"])}


def _relay(document: Document) -> Iterator[Row]:
    for journey in document["journeys"]:
        for stage in journey["rounds"]:
            for number, route in enumerate(stage["routes"]):
                slot = stage["slots"][number] if "slots" in stage else None
                about = {"relay": stage["relay"], "slot": slot, "merges": stage["merges"]}
                in_all = {
                    "rounds_in_all": journey["rounds_in_all"],
                    "routes_in_all": len(stage["routes"]) + stage.get("more_routes", 0),
                    "turns_in_all": stage["lengths"][number] if "lengths" in stage else len(route),
                }
                for turn, client in enumerate(route, start=1):
                    where = {"round": stage["round"], "route": number, "turn": turn, "client": client}
                    yield {**_run(document, journey), **where, **about, **in_all}


def _forgetting(document: Document) -> Iterator[Row]:
    for journey in document["journeys"]:
        in_all = {"chains_in_all": journey["forgetting"]["in_all"]}
        for chain in journey["forgetting"]["chains"]:
            for hop, row in enumerate(chain["matrix"]):
                where = {"round": chain["round"], "hop": hop + 1, "trained_at": chain["clients"][hop]}
                for place, accuracy in enumerate(row):
                    seen = {"samples_of": chain["clients"][place], "accuracy": accuracy}
                    yield {**_run(document, journey), **where, **seen, **in_all}


def _communication(document: Document) -> Iterator[Row]:
    for method in document["methods"]:
        for counted, values in (("transfers", "transfers"), ("bytes", "bytes"), ("bytes", "payloads")):
            for kind, value in (method["traffic"][values] or {}).items():
                yield {"method": method["name"], "counted": counted, "kind": kind, "value": value}


def _faults(document: Document) -> Iterator[Row]:
    columns = ("round", "client", "route", "hop", "node", "what", "done")
    for event in document["events"]:
        about = {name: event.get(name, "") for name in columns}
        yield {**_run(document, event), **about, "faults_in_all": document["events_in_all"]}


def _run(document: Document, found: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": document["methods"][found["method"]]["name"], "seed": found["seed"]}


def _classes(counts: Sequence[int]) -> dict[str, int]:
    return {f"class_{number}": value for number, value in enumerate(counts)}
