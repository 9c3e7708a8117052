"""A comparison in numbers: one standing for each method, the same for table, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.cost.ledger import KINDS
from fedrelay.errors import RunFolderError
from fedrelay.files import read_whole
from fedrelay.metrics.curves import speed_up, targets_of
from fedrelay.report.spreadsheet import as_csv
from fedrelay.runtime.comparison import ComparisonResult, MethodResults
from fedrelay.runtime.result import COSTS, Row, share_name

MeanStd = tuple[float, float]


@dataclass(frozen=True)
class Standing:
    """How one method did, over its seeds. Costs are means; None where no run came through."""

    contender: MethodResults
    accuracy: MeanStd | None
    accuracy_last: MeanStd | None
    rounds_to: Mapping[float, float | None]
    speed_up: Mapping[float, float | None]
    costs_to: Mapping[float, Row | None]
    client_updates: float | None
    longest_chain: float | None
    transfers: Mapping[str, float | None]
    bytes: float | None
    seconds: float | None
    virtual_seconds: float | None
    computing_seconds: float | None
    communicating_seconds: float | None

    @property
    def name(self) -> str:
        """What the comparison calls the method."""
        return self.contender.name

    def facts(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "method": self.contender.method,
            "accuracy": _named(self.accuracy),
            "accuracy_last": _named(self.accuracy_last),
            "rounds_to": {share_name(share): rounds for share, rounds in self.rounds_to.items()},
            "speed_up": {share_name(share): factor for share, factor in self.speed_up.items()},
            "costs_to": {share_name(share): _costs(costs) for share, costs in self.costs_to.items()},
            "client_updates": self.client_updates,
            "longest_chain": self.longest_chain,
            "transfers": dict(self.transfers),
            "bytes": self.bytes,
            "seconds": self.seconds,
            "virtual_seconds": self.virtual_seconds,
            "computing_seconds": self.computing_seconds,
            "communicating_seconds": self.communicating_seconds,
            "fault_events": dict(sorted(self.contender.fault_events.items())),
            "diverged": list(self.contender.diverged),
            "fruitless": list(self.contender.fruitless),
            "runs": [result.summary() for result in self.contender.results],
        }

    def row(self) -> dict[str, Any]:
        """Everything but the runs, as one line of a table."""
        facts = self.facts()
        runs, fault_events = facts.pop("runs"), facts.pop("fault_events")
        ends = {end: len(facts.pop(end)) for end in ("diverged", "fruitless")}
        return {
            "label": self.name,
            **_flat(facts),
            "fault_events": sum(fault_events.values()),
            "runs": len(runs),
            **ends,
        }


def standings(outcome: ComparisonResult) -> list[Standing]:
    """One for each method, in the order of the comparison; speed-ups are against the first."""
    goals = targets_of(outcome.reference, outcome.comparison.eval.targets)
    first = _rounds_to(outcome.contenders[0], goals)
    return [_standing(contender, goals, first) for contender in outcome.contenders]


def comparison_facts(outcome: ComparisonResult) -> dict[str, Any]:
    """The comparison as `results.json` and `--json` have it."""
    return {
        "reference": outcome.reference,
        "methods": {standing.name: standing.facts() for standing in standings(outcome)},
        "out": str(outcome.comparison.out) if outcome.comparison.out else None,
    }


def comparison_csv(outcome: ComparisonResult) -> str:
    """The comparison as `table.csv` has it, for other programs."""
    return as_csv([standing.row() for standing in standings(outcome)])


def plan_facts(run: Path) -> dict[str, Any]:
    """What `plan.json` of a run folder says of the whole run."""
    path = run / "plan.json"
    try:
        facts = json.loads(read_whole(path))
        return {name: facts[name] for name in ("clients", "parameters")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None


def _standing(contender: MethodResults, goals: Mapping[float, float], first: Mapping[float, float | None]) -> Standing:
    results = contender.results
    reached = _rounds_to(contender, goals)
    return Standing(
        contender=contender,
        accuracy=contender.mean_std(lambda result: result.accuracy),
        accuracy_last=contender.mean_std(lambda result: result.accuracy_last),
        rounds_to=reached,
        speed_up={share: speed_up(first[share], rounds) for share, rounds in reached.items()},
        costs_to={share: None if contender.failed else contender.costs_to(goal) for share, goal in goals.items()},
        client_updates=_mean(result.client_updates for result in results),
        longest_chain=_mean(result.longest_route for result in results),
        transfers={kind: _mean(result.transfers[kind] for result in results) for kind in KINDS},
        bytes=_mean(result.bytes for result in results),
        seconds=_mean(result.seconds for result in results),
        virtual_seconds=_mean(result.virtual_seconds for result in results),
        computing_seconds=_mean(result.computing_seconds for result in results),
        communicating_seconds=_mean(result.communicating_seconds for result in results),
    )


def _rounds_to(contender: MethodResults, goals: Mapping[float, float]) -> dict[float, float | None]:
    """Mean rounds to each target; a seed that failed never got there."""
    return {share: None if contender.failed else _whole(contender.rounds_to(goal)) for share, goal in goals.items()}


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return _whole(sum(known) / len(known)) if known else None


def _whole(number: float | None) -> float | None:
    """A mean of equal counts is a count again."""
    return int(number) if number is not None and float(number).is_integer() else number


def _costs(costs: Row | None) -> Row:
    return dict(costs) if costs else dict.fromkeys(COSTS)


def _named(mean_std: MeanStd | None) -> dict[str, float | None]:
    mean, std = mean_std or (None, None)
    return {"mean": mean, "std": std}


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under joined names: `accuracy_mean`."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat
