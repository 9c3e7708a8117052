"""How models travelled, as the relay map draws it: the routes of rounds, groups, and what was forgotten on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedrelay.errors import RunFolderError
from fedrelay.report.gathering import Seen
from fedrelay.report.recall import recalls
from fedrelay.report.thinning import PAGE, Limits, evenly, significant
from fedrelay.runtime.result import Row

_MARKED = ("route", "client", "node", "what", "done")
"""What the relay map says of a fault."""


def journey(run: Seen, runs: int = 1, limits: Limits = PAGE) -> dict[str, Any]:
    """The rounds of one run, which shares the limits with others."""
    travelled = [line for line in run.ledger if line["round"]]
    drawn = limits.routes * limits.stops_of_a_route
    stops = max((min(line["client_updates"], drawn) for line in travelled), default=0)
    shown = evenly(travelled, max(2, limits.stops // max(1, runs) // max(1, stops)))
    faults: dict[int, list[Row]] = {}
    for event in run.events:
        faults.setdefault(int(event["round"]), []).append(event)
    try:
        stages = [{**_stage(line, limits), **_troubles(faults.get(line["round"], []), limits)} for line in shown]
    except (ValueError, TypeError) as error:
        raise RunFolderError(f"{run.records.path / 'ledger.jsonl'}: is damaged ({error})") from None
    groups = run.records.groups
    few = sum(map(len, groups)) <= limits.clients_in_groups
    return {
        "clients": run.records.plan["clients"],
        "groups": [list(group) for group in groups] if few else [],
        "groups_in_all": len(groups),
        "rounds_in_all": len(travelled),
        "rounds": stages,
        "before": next((_costs(line) for line in run.ledger if not line["round"]), None),
    }


def _troubles(events: Sequence[Row], limits: Limits) -> dict[str, Any]:
    """What went wrong in a round, where something did: how often, and the places to mark."""
    if not events:
        return {}
    kept = [{name: event[name] for name in _MARKED if name in event} for event in events[: limits.faults_of_a_round]]
    return {"troubles": dict(Counter(str(event["what"]) for event in events)), "faults": kept}


def _stage(line: Row, limits: Limits) -> dict[str, Any]:
    """One round: who was visited, in which order, and what became of the models."""
    routes = _routes(line)
    kept = [route[: limits.stops_of_a_route] for route in routes[: limits.routes]]
    stage = {
        "round": line["round"],
        "routes": kept,
        "relay": line.get("relay") or relay_of(line),
        "merges": line.get("merges", True),
        **_costs(line),
    }
    if "slots" in line:
        stage["slots"] = line["slots"][: limits.routes]
    if len(routes) > len(kept):
        stage["more_routes"] = len(routes) - len(kept)
    if any(len(route) > limits.stops_of_a_route for route in routes[: limits.routes]):
        stage["lengths"] = [len(route) for route in routes[: limits.routes]]
    return stage


def _routes(line: Row) -> list[list[int]]:
    routes = line.get("routes", [])
    if not isinstance(routes, list) or not all(isinstance(route, list) for route in routes):
        raise ValueError(f"the routes of round {line['round']} cannot be read")
    return routes


def _costs(line: Row) -> dict[str, Any]:
    costs = {name: line[name] for name in ("s2c", "c2s", "c2c", "bytes", "client_updates")}
    return {**costs, "virtual_seconds": significant(line.get("virtual_seconds", 0.0))}


def relay_of(line: Mapping[str, Any]) -> str:
    """How models were handed on, read off the kinds of transfers; runs of the first days did not note it."""
    if not line["s2c"]:
        return "peers" if line["c2c"] else "none"
    return "direct" if line["c2c"] or line["longest_route"] <= 1 else "server"


def memories(run: Seen, runs: int = 1, limits: Limits = PAGE) -> dict[str, Any]:
    """The forgetting matrices of followed chains of one run, which shares the limits with others."""
    followed = recalls(run.records)
    cells = max((len(recall.clients) ** 2 // 2 for recall in followed), default=0)
    return {
        "in_all": len(followed),
        "chains": [
            {
                "round": recall.round,
                "clients": list(recall.clients),
                "matrix": [[significant(value, 4) for value in row] for row in recall.matrix],
                "backward_transfer": significant(recall.backward_transfer),
            }
            for recall in evenly(followed, max(2, limits.cells // max(1, runs) // max(1, cells)))
        ],
    }
