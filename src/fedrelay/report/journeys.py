"""How models travelled, as the relay map draws it: the routes of rounds, groups, and what was forgotten on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrelay.errors import RunFolderError
from fedrelay.report.gathering import Seen
from fedrelay.report.recall import recalls
from fedrelay.report.thinning import evenly, significant
from fedrelay.result import Row

MOST_STOPS = 400_000
"""So many stops of all runs together go into a page; beyond, rounds are left out evenly."""

MOST_CELLS = 200_000
"""The same for the accuracies of forgetting matrices."""

MOST_ROUTES = 200
MOST_STOPS_OF_A_ROUTE = 400
"""Of a round, so many routes and so many stops of each are drawn."""

MOST_CLIENTS_IN_GROUPS = 2000
"""Groups of larger federations are not drawn, but for those that a model visits."""


def journey(run: Seen, most_stops: int = MOST_STOPS) -> dict[str, Any]:
    """The rounds of one run."""
    travelled = [line for line in run.ledger if line["round"]]
    stops = max((min(line["client_updates"], MOST_ROUTES * MOST_STOPS_OF_A_ROUTE) for line in travelled), default=0)
    shown = evenly(travelled, max(2, most_stops // max(1, stops)))
    try:
        stages = [_stage(line) for line in shown]
    except (ValueError, TypeError) as error:
        raise RunFolderError(f"{run.records.path / 'ledger.jsonl'}: is damaged ({error})") from None
    groups = run.records.groups
    drawn = sum(map(len, groups)) <= MOST_CLIENTS_IN_GROUPS
    return {
        "clients": run.records.plan["clients"],
        "groups": [list(group) for group in groups] if drawn else [],
        "groups_in_all": len(groups),
        "rounds_in_all": len(travelled),
        "rounds": stages,
        "before": next((_costs(line) for line in run.ledger if not line["round"]), None),
    }


def _stage(line: Row) -> dict[str, Any]:
    """One round: who was visited, in which order, and what became of the models."""
    routes = _routes(line)
    kept = [route[:MOST_STOPS_OF_A_ROUTE] for route in routes[:MOST_ROUTES]]
    stage = {
        "round": line["round"],
        "routes": kept,
        "relay": line.get("relay") or relay_of(line),
        "merges": line.get("merges", True),
        **_costs(line),
    }
    if "slots" in line:
        stage["slots"] = line["slots"][:MOST_ROUTES]
    if len(routes) > len(kept):
        stage["more_routes"] = len(routes) - len(kept)
    if any(len(route) > MOST_STOPS_OF_A_ROUTE for route in routes[:MOST_ROUTES]):
        stage["lengths"] = [len(route) for route in routes[:MOST_ROUTES]]
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


def memories(run: Seen, most_cells: int = MOST_CELLS) -> dict[str, Any]:
    """The forgetting matrices of followed chains."""
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
            for recall in evenly(followed, max(2, most_cells // max(1, cells)))
        ],
    }


def shared_out(most: int, runs: Sequence[Seen]) -> int:
    """What each run may take of a limit for all."""
    return most // max(1, len(runs))
