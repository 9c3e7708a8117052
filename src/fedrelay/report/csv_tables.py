"""The numbers of every section as CSV tables.

A table is a list of blocks. A block maps columns to one value for all its rows, or to a list with one value per row;
a list may be a reference into the document. `*` holds a matrix with named columns. So the page can hold every table
without repeating its data. If a document leaves something out, a column that ends in `_in_all` says how much there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrelay.files import write_atomically
from fedrelay.metrics.curves import speed_up
from fedrelay.report.figure_specs import Data, costs_of, ref, resolve
from fedrelay.report.format import as_csv

Block = Mapping[str, Any]
EVENTS = ("method", "seed", "round", "client", "route", "hop", "node", "what", "done")


def write_csv_tables(document: Data, folder: Path) -> list[Path]:
    """Write one CSV file per section that has numbers."""
    written = []
    for name, rows in csv_rows(document).items():
        if rows:
            path = folder / f"{name}.csv"
            write_atomically(path, as_csv(rows).encode())
            written.append(path)
    return written


def csv_rows(document: Data) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of every table."""
    return {
        **{
            name: [row for block in blocks for row in _rows(block, document)]
            for name, blocks in csv_blocks(document).items()
        },
        "routes": list(_hops(document)),
    }


def csv_blocks(data: Data) -> dict[str, list[Block]]:
    """Return the blocks of every table except the hops, which the page makes from the routes."""
    return {
        "curves": list(_curves(data)),
        "targets": list(_targets(data)),
        "results": list(_results(data)),
        "differences": list(_differences(data)),
        "gains": list(_gains(data)),
        "clients": list(_clients(data)),
        "groups": list(_groups(data)),
        "forgetting": list(_forgetting(data)),
        "communication": list(_communication(data)),
        "faults": [{**{name: ref("events", name) for name in EVENTS}, "faults_in_all": data["events_in_all"]}],
    }


def _rows(block: Block, document: Data) -> Iterator[dict[str, Any]]:
    columns = {name: resolve(value, document) for name, value in block.items() if name != "*"}
    if "*" in block:
        matrix = resolve(block["*"]["rows"], document)
        columns |= {name: [row[place] for row in matrix] for place, name in enumerate(block["*"]["names"])}
    lengths = [len(value) for value in columns.values() if isinstance(value, list)]
    for place in range(max(lengths, default=1)):
        yield {name: value[place] if isinstance(value, list) else value for name, value in columns.items()}


def _curves(data: Data) -> Iterator[Block]:
    for number, method in enumerate(data["methods"]):
        path = f"methods/{number}/curves"
        block = {
            "method": method["name"],
            "seeds": ref(path, "seeds"),
            **{cost: ref(path, cost) for cost in costs_of(data)},
        }
        block |= {f"{metric}_{kind}": ref(path, metric, kind) for metric in data["metrics"] for kind in ("mean", "std")}
        yield {**block, "evaluations_in_all": method["curves"]["evaluated"]}


def _targets(data: Data) -> Iterator[Block]:
    """Factors are relative to the baseline."""
    for method in data["methods"]:
        baseline = data["methods"][data["baseline"]]
        for place, target in enumerate(data["targets"]):
            before, costs = (each["summary"]["costs_to"][place] for each in (baseline, method))
            factors = {f"speed_up_{cost}": speed_up(before.get(cost), costs.get(cost)) for cost in costs_of(data)}
            where = {"method": method["name"], "target": target[data["metric"]["name"]]}
            yield {
                **where,
                **{cost: costs.get(cost) for cost in costs_of(data)},
                "compared_with": baseline["name"],
                **factors,
            }


def _results(data: Data) -> Iterator[Block]:
    metric = data["metric"]["name"]
    for method in data["methods"]:
        summary = method["summary"]
        row = {"method": method["name"]}
        for level in (f"{metric}_last", metric):
            row |= {f"{level}_{kind}": value for kind, value in summary[level].items()}
        row |= {name: summary[name] for name in ("client_updates", "longest_chain")} | summary["transfers"]
        times = ("seconds",) if data["real_times"] else ("virtual_seconds", "seconds")
        row |= {name: summary[name] for name in ("bytes", *times)}
        states = " ".join(run["state"] for run in method["runs"])
        yield {**row, "runs": len(method["curves"]["runs"]), "states": states}


def _differences(data: Data) -> Iterator[Block]:
    """Of every method to the baseline."""
    found = data["differences"] or {"methods": {}}
    for name, each in found["methods"].items():
        row = {"method": name, "baseline": found["baseline"], "measure": found["measure"]}
        yield {**row, **each, "seeds": len(each["seeds"])}


def _gains(data: Data) -> Iterator[Block]:
    """Every client with every method."""
    if data["gains"] is not None:
        yield {name: ref("gains", "columns", name) for name in data["gains"]["columns"]}


def _clients(data: Data) -> Iterator[Block]:
    for number, federation in enumerate(data["federations"]):
        clients = list(range(len(federation["counts"])))
        where = {"federation": number, "client": clients, "clients_in_all": federation["clients"]}
        yield {**where, "*": {"names": _columns(federation), "rows": ref("federations", number, "counts")}}


def _groups(data: Data) -> Iterator[Block]:
    for run in data["runs"]:
        if not run["group_counts"]:
            continue
        names = _columns(data["federations"][run["federation"]])
        for group in run["group_counts"]:
            members = run["groups"][group["group"]] if run["groups"] else ()
            where = {"group": group["group"], "clients": " ".join(map(str, members))}
            yield {
                **_run(data, run), **where, "groups_in_all": run["groups_in_all"],
                **dict(zip(names, group["counts"], strict=True)),
            }  # fmt: skip


def _columns(federation: Mapping[str, Any]) -> list[str]:
    """`class_7`, or `classes_12-15` where a page merges classes."""
    names = (name.replace("–", "-") for name in federation["class_names"])
    return [f"{'classes' if '-' in name else 'class'}_{name}" for name in names]


def _hops(data: Data) -> Iterator[dict[str, Any]]:
    for run in data["runs"]:
        for found in run["rounds"]:
            for number, route in enumerate(found["routes"]):
                slot = found["slots"][number] if "slots" in found else None
                about = {"handover": found["handover"], "slot": slot, "merges": found["merges"]}
                in_all = {
                    "rounds_in_all": run["rounds_in_all"],
                    "routes_in_all": len(found["routes"]) + found.get("more_routes", 0),
                    "hops_in_all": found["lengths"][number] if "lengths" in found else len(route),
                }
                for hop, client in enumerate(route, start=1):
                    where = {"round": found["round"], "route": number, "hop": hop, "client": client}
                    where |= {"name": run["names"][client] if run["names"] else ""}
                    yield {**_run(data, run), **where, **about, **in_all}


def _forgetting(data: Data) -> Iterator[Block]:
    for number, run in enumerate(data["runs"]):
        for place, chain in enumerate(run["forgetting"]["chains"]):
            for hop, client in enumerate(chain["clients"]):
                yield {
                    **_run(data, run),
                    "round": chain["round"],
                    "hop": hop + 1,
                    "trained_at": client,
                    "samples_of": chain["clients"][: hop + 1],
                    data["metric"]["on_clients"]: ref("runs", number, "forgetting", "chains", place, "matrix", hop),
                    "chains_in_all": run["forgetting"]["in_all"],
                }


def _communication(data: Data) -> Iterator[Block]:
    for method in data["methods"]:
        for counted, view in (("transfers", "transfers"), ("bytes", "bytes"), ("bytes", "payloads")):
            for kind, value in method["traffic"][view].items():
                yield {"method": method["name"], "counted": counted, "kind": kind, "value": value}


def _run(data: Data, run: Mapping[str, Any]) -> dict[str, Any]:
    return {"method": data["methods"][run["method"]]["name"], "seed": run["seed"]}
