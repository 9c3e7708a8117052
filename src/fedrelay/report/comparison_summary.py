"""A comparison in numbers, the same for the terminal, the page, CSV and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedrelay.cost.ledger import KINDS
from fedrelay.errors import RunFolderError
from fedrelay.files import read_regular_file
from fedrelay.metrics.curves import mean_std, speed_up
from fedrelay.report.format import Level, as_csv, score
from fedrelay.report.tuning_statement import tuning_statement
from fedrelay.runtime.client_comparison import ClientComparison
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import COSTS, share_name
from fedrelay.tasks.task_facts import CLASSIFICATION


def summarize(outcome: ComparisonResult) -> dict[str, Row]:
    """Summarize every method over its seeds, by name in the order of the comparison.

    Costs are means; None if no run has a result. Speed-ups are relative to the baseline.
    """
    targets = outcome.targets
    goals = {share_name(share): targets.get(share) for share in outcome.comparison.eval.targets}
    before = _rounds_to(outcome.baseline, goals)
    metric = outcome.task.headline
    return {entry.name: _summary(entry, metric, goals, before) for entry in outcome.methods}


def with_reachable_targets(outcome: ComparisonResult) -> tuple[ComparisonResult, str]:
    """Targets that say something: if no method reached any, they become shares of the best score that was reached.

    Returns:
        The outcome, with another reference if targets were replaced; and a sentence about it, or an empty string.
    """
    goals = outcome.targets.values()
    if any(entry.rounds_to(goal) is not None for entry in outcome.methods for goal in goals):
        return outcome, ""
    read, metric = outcome.task.headline_info, outcome.task.headline
    reached = []
    for entry in outcome.methods:
        known = [[row[metric] for row in each.history if row.get(metric) is not None] for each in entry.results]
        if known and all(known) and not entry.failed:
            reached.append(min((max(levels, key=read.gain) for levels in known), key=read.gain))
    if not reached or not outcome.comparison.eval.targets:
        return outcome, ""
    best = max(reached, key=read.gain)
    settings = outcome.comparison.eval.model_copy(update={"reference": best})
    comparison = outcome.comparison.model_copy(update={"eval": settings})
    missed = f"No method reached {' or '.join(score(read, goal) for goal in goals)} with every seed. " if goals else ""
    what = f"{score(read, best)}, the best {outcome.task.label} that all seeds of a method reached"
    return replace(outcome, comparison=comparison), f"{missed}Targets are shares of {what}."


def comparison_facts(outcome: ComparisonResult) -> dict[str, Any]:
    """Return the content of `results.json` and `--json`."""
    attacks = attack_damages(outcome)
    return {
        **({} if outcome.task == CLASSIFICATION else {"task": outcome.task.name, "metric": outcome.task.headline}),
        "reference": outcome.reference,
        "methods": summarize(outcome),
        **({"differences": difference_facts(outcome)} if len(outcome.methods) > 1 else {}),
        **({"clients": _client_facts(outcome.clients)} if outcome.clients is not None else {}),
        "tuning": tuning_statement(outcome, [outcome.comparison.out] if outcome.comparison.out else []),
        "out": str(outcome.comparison.out) if outcome.comparison.out else None,
        **({"attacks": attacks} if attacks else {}),
        **({"notes": list(outcome.notes)} if outcome.notes else {}),
    }


def _client_facts(clients: ClientComparison) -> dict[str, Any]:
    """Every client with every method, how they spread, and who loses by taking part."""
    spreads = {name: clients.spread(name) for name in clients.gains}
    return {
        "rows": list(clients),
        "spread": {name: None if each is None else asdict(each) for name, each in spreads.items()},
        "who_loses": {name: clients.who_loses(name) for name in clients.compared},
    }


def difference_facts(outcome: ComparisonResult) -> dict[str, Any]:
    """The differences of all methods to the baseline, with intervals, effect sizes, and how they were computed."""
    return {
        "baseline": outcome.baseline.name,
        "measure": f"{outcome.task.headline}_last",
        "higher_is_better": outcome.task.headline_info.higher_is_better,
        **DIFFERENCES_IN_WORDS,
        "methods": {
            name: {
                "seeds": list(each.seeds),
                "mean": None if each.difference is None else each.difference.mean,
                **_ends(None if each.difference is None else each.difference.interval),
                "effect_size": None if each.difference is None else each.difference.effect_size,
                "p_value": each.difference.p_value if each.difference and len(each.seeds) > 1 else None,
                "adjusted_p_value": each.adjusted_p_value,
                "more_than_chance": each.more_than_chance,
            }
            for name, each in outcome.differences.items()
        },
        "notes": list(seed_notes(outcome)),
    }


DIFFERENCES_IN_WORDS = {
    "interval": "95 % confidence interval of the mean difference, Student's t over paired seeds",
    "effect": "Hedges' g of paired differences: mean / standard deviation, corrected for few seeds",
    "test": "two-sided paired t-test; p-values adjusted by Holm's method for the number of methods, level 5 %",
}
"""How differences are computed; everything that shows them says it in these words."""


def _ends(interval: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def seed_notes(outcome: ComparisonResult) -> Iterator[str]:
    """What the number of seeds allows to say, where it is not enough."""
    found = outcome.differences
    for seeds, note in (
        (0, "no seed{whose} in common with {baseline}: no difference"),
        (1, "one seed{whose}: no interval, no test, no effect size; use at least three seeds"),
        (2, "two seeds{whose}: the interval is very wide, and there is no effect size; use at least three seeds"),
    ):
        names = [name for name, each in found.items() if len(each.seeds) == seeds]
        if names:
            whose = "" if len(names) == len(found) else f" of {', '.join(names)}"
            yield note.format(whose=whose, baseline=outcome.baseline.name)


def comparison_csv(outcome: ComparisonResult) -> str:
    """Return the content of `table.csv`: everything but the runs, and the differences to the baseline."""
    found = difference_facts(outcome)
    columns = {name: {**facts, "seeds": len(facts["seeds"])} for name, facts in found["methods"].items()}
    return as_csv(
        [
            {
                "label": name,
                **_flat(_row(summary)),
                **_flat({"difference": {"baseline": found["baseline"], **columns.get(name, {})}}),
            }
            for name, summary in summarize(outcome).items()
        ]
    )


def attack_damages(outcome: ComparisonResult) -> dict[str, Row]:
    """Measure the damage to every attacked method, by name in the order of the comparison.

    Drops are computed seed by seed against the same method without attack, the `reference` if it was compared.
    """
    settings = {each.name: each.model_dump_json(exclude={"attack", "label"}) for each in outcome.comparison.methods}
    attacked = {each.name: each for each in outcome.methods if any(result.attack for result in each.results)}
    clean = {settings[each.name]: each for each in reversed(outcome.methods) if each.name not in attacked}
    return {name: _damage(entry, clean.get(settings[name])) for name, entry in attacked.items()}


def plan_facts(run: Path) -> dict[str, Any]:
    """Read the numbers of clients and parameters from `plan.json` of a run folder."""
    path = run / "plan.json"
    try:
        facts = json.loads(read_regular_file(path))
        return {name: facts[name] for name in ("clients", "parameters")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None


Goals = Mapping[str, float | None]
"""Share → target; None where there is no reference."""


def _summary(entry: MethodResults, metric: str, goals: Goals, before: Mapping[str, float | None]) -> Row:
    results = entry.results
    reached = _rounds_to(entry, goals)

    def mean(name: str) -> float | None:
        return _mean([getattr(result, name) for result in results])

    return {
        "method": entry.method,
        metric: _level([result.score for result in results]),
        f"{metric}_last": _level([result.score_last for result in results]),
        "rounds_to": reached,
        "speed_up": {share: speed_up(before[share], rounds) for share, rounds in reached.items()},
        "costs_to": {
            share: (None if entry.failed or goal is None else entry.costs_to(goal)) or dict.fromkeys(COSTS)
            for share, goal in goals.items()
        },
        "client_updates": mean("client_updates"),
        "longest_chain": mean("longest_route"),
        "transfers": {kind: _mean([result.transfers[kind] for result in results]) for kind in KINDS},
        "bytes": mean("bytes"),
        **{f"{kind}seconds": mean(f"{kind}seconds") for kind in ("", "virtual_", "computing_", "communicating_")},
        "fault_events": dict(sorted(entry.fault_events.items())),
        "diverged": list(entry.diverged),
        "untrained": list(entry.untrained),
        "runs": [result.summary() for result in results],
    }


def _row(summary: Row) -> Row:
    """The summary with numbers in place of lists."""
    counts = {name: len(summary[name]) for name in ("runs", "diverged", "untrained")}
    rest = {name: value for name, value in summary.items() if name not in counts}
    return {**rest, "fault_events": sum(summary["fault_events"].values()), **counts}


def _damage(entry: MethodResults, reference: MethodResults | None) -> Row:
    results = entry.results
    before = {result.experiment.seed: result for result in reference.results} if reference else {}
    pairs = [(before[result.experiment.seed], result) for result in results if result.experiment.seed in before]
    levels = {}
    for name, drop, value in (
        ("accuracy", "drop", "accuracy_last"),
        ("on_classes", "drop_on_classes", "accuracy_classes"),  # the swapped classes only
    ):
        both = [(getattr(then, value), getattr(now, value)) for then, now in pairs]
        levels[name] = _level([getattr(result, value) for result in results])
        levels[drop] = _level([then - now for then, now in both if then is not None and now is not None])
    return {
        "reference": reference.name if reference else None,
        **levels,
        "attackers": mean_std([len(result.attack["attackers"]) for result in results])[0],
        "flips": mean_std([result.attack["flips"] for result in results])[0],
    }


def _rounds_to(entry: MethodResults, goals: Goals) -> dict[str, float | None]:
    """Mean rounds to each target; None if a seed failed or did not reach it."""
    return {
        share: None if entry.failed or goal is None else _whole(entry.rounds_to(goal)) for share, goal in goals.items()
    }


def _level(values: Sequence[float | None]) -> Level:
    known = [value for value in values if value is not None and not math.isnan(value)]
    mean, std = mean_std(known) if known else (None, None)
    return {"mean": mean, "std": std}


def _mean(values: Sequence[float]) -> float | None:
    return _whole(sum(values) / len(values)) if values else None


def _whole(number: float | None) -> float | None:
    """Turn whole floats into integers."""
    return int(number) if number is not None and float(number).is_integer() else number


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested names: `accuracy_mean`."""
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[prefix + name] = value
    return flat
