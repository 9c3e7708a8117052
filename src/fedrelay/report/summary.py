"""A comparison in numbers: one summary per method, the same for the terminal, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.cost.ledger import KINDS
from fedrelay.errors import RunFolderError
from fedrelay.files import read_regular_file
from fedrelay.metrics.curves import speed_up, target_accuracies
from fedrelay.report.format import as_csv
from fedrelay.runtime.comparison import ComparisonResult, MethodResults
from fedrelay.runtime.result import COSTS, Row, share_name

MeanStd = tuple[float, float]


@dataclass(frozen=True)
class MethodSummary:
    """Results and costs of one method over its seeds. Costs are means; None if no run has a result."""

    entry: MethodResults
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
        """The method's name in the comparison."""
        return self.entry.name

    def facts(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "method": self.entry.method,
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
            "fault_events": dict(sorted(self.entry.fault_events.items())),
            "diverged": list(self.entry.diverged),
            "fruitless": list(self.entry.fruitless),
            "runs": [result.summary() for result in self.entry.results],
        }

    def row(self) -> dict[str, Any]:
        """Return one line of a table: everything but the runs."""
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


def summarize(outcome: ComparisonResult) -> list[MethodSummary]:
    """Summarize every method, in the order of the comparison; speed-ups are relative to the first."""
    goals = target_accuracies(outcome.reference, outcome.comparison.eval.targets)
    first = _rounds_to(outcome.methods[0], goals)
    return [_summary(entry, goals, first) for entry in outcome.methods]


def comparison_facts(outcome: ComparisonResult) -> dict[str, Any]:
    """Return the content of `results.json` and `--json`."""
    return {
        "reference": outcome.reference,
        "methods": {each.name: each.facts() for each in summarize(outcome)},
        "out": str(outcome.comparison.out) if outcome.comparison.out else None,
    }


def comparison_csv(outcome: ComparisonResult) -> str:
    """Return the content of `table.csv`."""
    return as_csv([each.row() for each in summarize(outcome)])


def plan_facts(run: Path) -> dict[str, Any]:
    """Read the numbers of clients and parameters from `plan.json` of a run folder."""
    path = run / "plan.json"
    try:
        facts = json.loads(read_regular_file(path))
        return {name: facts[name] for name in ("clients", "parameters")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None


def _summary(entry: MethodResults, goals: Mapping[float, float], first: Mapping[float, float | None]) -> MethodSummary:
    results = entry.results
    reached = _rounds_to(entry, goals)
    return MethodSummary(
        entry=entry,
        accuracy=entry.mean_std(lambda result: result.accuracy),
        accuracy_last=entry.mean_std(lambda result: result.accuracy_last),
        rounds_to=reached,
        speed_up={share: speed_up(first[share], rounds) for share, rounds in reached.items()},
        costs_to={share: None if entry.failed else entry.costs_to(goal) for share, goal in goals.items()},
        client_updates=_mean(result.client_updates for result in results),
        longest_chain=_mean(result.longest_route for result in results),
        transfers={kind: _mean(result.transfers[kind] for result in results) for kind in KINDS},
        bytes=_mean(result.bytes for result in results),
        seconds=_mean(result.seconds for result in results),
        virtual_seconds=_mean(result.virtual_seconds for result in results),
        computing_seconds=_mean(result.computing_seconds for result in results),
        communicating_seconds=_mean(result.communicating_seconds for result in results),
    )


def _rounds_to(entry: MethodResults, goals: Mapping[float, float]) -> dict[float, float | None]:
    """Mean rounds to each target; None if a seed failed or did not reach it."""
    return {share: None if entry.failed else _whole(entry.rounds_to(goal)) for share, goal in goals.items()}


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return _whole(sum(known) / len(known)) if known else None


def _whole(number: float | None) -> float | None:
    """Turn whole floats into integers."""
    return int(number) if number is not None and float(number).is_integer() else number


def _costs(costs: Row | None) -> Row:
    return dict(costs) if costs else dict.fromkeys(COSTS)


def _named(mean_std: MeanStd | None) -> dict[str, float | None]:
    mean, std = mean_std or (None, None)
    return {"mean": mean, "std": std}


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested names: `accuracy_mean`."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat
