"""A tuning in words and numbers, the same for the terminal, the page and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrelay.report.comparison_summary import summarize
from fedrelay.report.format import NONE, count, percent, score, size
from fedrelay.runtime.result import Row
from fedrelay.tuning.planned_costs import PlannedCosts, total
from fedrelay.tuning.result import MethodTuning, Standing, TuningResult, spec_file
from fedrelay.tuning.settings import Objective, Tuning

COST_NAMES: Mapping[Objective, str] = {
    "rounds": "rounds",
    "updates": "client updates",
    "bytes": "traffic",
    "hours": "virtual hours",
}


def tuning_facts(result: TuningResult) -> dict[str, Any]:
    """Return the content of `tuning.json` and `--json`."""
    best = result.recommended
    return {
        "metric": result.metric.name,
        "objective": result.tuning.tune.objective,
        "recommended": None if best is None else best.name,
        "spec": None if best is None else str(result.out / "recommended.yaml"),
        "standings": [_standing_facts(result, each) for each in result.standings],
        "methods": {each.name: _method_facts(result, each) for each in result.methods},
        "comparison": str(result.out / "comparison"),
        "page": str(result.out / "report.html"),
        "extensions": list(result.extensions),
        "warnings": list(result.warnings),
        "out": str(result.out),
    }


def planned_facts(tuning: Tuning, planned: list[PlannedCosts]) -> dict[str, Any]:
    """Return what `--dry-run --json` prints."""
    return {
        "trials": tuning.tune.trials,
        "rungs": tuning.tune.rungs,
        "tuning_seeds": list(tuning.tuning_seeds),
        "seeds": list(tuning.seeds),
        "runs": sum(each.runs for each in planned),
        "methods": {
            each.method.name: {
                "learning_rates": list(each.method.space.rates),
                "own": None if (own := each.method.space.own) is None else {own.key: list(own.values)},
                "runs": each.runs,
                "one_run": each.full,
                "tuning": each.tuning,
                "comparison": each.comparison,
            }
            for each in planned
        },
        "total": total([row for each in planned for row in (each.tuning, each.comparison)]),
    }


def objective_in_words(tuning: Tuning) -> str:
    """`accuracy within 30 rounds`, without the metric: what methods are compared by."""
    stop = tuning.stop
    limits = (
        f"{count(tuning.rounds)} rounds",
        f"{count(stop.max_updates)} client updates" if stop.max_updates is not None else "",
        size(stop.max_bytes) if stop.max_bytes is not None else "",
        f"{stop.max_hours:g} virtual hours" if stop.max_hours is not None else "",
    )
    return f"within {' and '.join(filter(None, limits))}"


def settings_in_words(each: MethodTuning) -> str:
    """`lr 0.2, terms.prox.mu 0.1`."""
    return ", ".join(f"{name.removeprefix('train.')} {value}" for name, value in each.settings.items())


def cost_in_words(objective: Objective, cost: float | None) -> str:
    """A cost to the target; `not reached` if a seed missed it."""
    if cost is None:
        return "not reached"
    return size(cost) if objective == "bytes" else f"{cost:.3g} h" if objective == "hours" else count(round(cost, 1))


def reason(result: TuningResult) -> str:
    """Why the recommended method is recommended, in a sentence or two."""
    best = result.recommended
    if best is None:
        return "No method finished every seed of the comparison, so none is recommended."
    tuning, info, seeds = result.tuning, result.task.headline_info, len(result.tuning.seeds)
    others = [each for each in result.standings[1:] if not each.pooled and not each.failed]
    over = f"{count(seeds)} fresh seed{'s' if seeds > 1 else ''}"
    if tuning.tune.objective == "score":
        what = f"{score(info, best.score)} test {result.task.label} {objective_in_words(tuning)}"
        said = f"{best.name} has the best result with {over}: {what}."
    elif best.cost is None:
        said = f"No method reached {score(info, tuning.stop.target)} with every seed; {best.name} came closest."
    else:
        cost = cost_in_words(tuning.tune.objective, best.cost)
        name = "" if tuning.tune.objective in ("bytes", "hours") else f" {COST_NAMES[tuning.tune.objective]}"
        said = (
            f"{best.name} reaches {score(info, tuning.stop.target)} on validation samples at the least cost with "
            f"{over}: {cost}{name}."
        )
    close = [each.name for each in others if not result.is_clear(each)]
    if not others:
        return said
    if close:
        return f"{said} The lead over {', '.join(close)} is too small to be sure: less than twice its standard error."
    return f"{said} The lead over every other method is more than twice its standard error."


def lead_in_words(result: TuningResult, other: Standing) -> str:
    """`+3.1 ± 1.0`: how much better the recommended method is, with the standard error."""
    lead, objective = result.lead_over(other), result.tuning.tune.objective
    if lead is None:
        return NONE
    factor = 100 if objective == "score" and result.task.headline_info.percent else 1
    error = f" ± {factor * lead[1]:.2g}" if len(result.tuning.seeds) > 1 else ""
    return f"{factor * lead[0]:+.3g}{error}"


def costs_of_comparison(result: TuningResult) -> dict[str, Row]:
    """Mean costs of the runs of the comparison, by method."""
    names = ("client_updates", "bytes", "virtual_seconds")
    return {name: {each: row[each] for each in names} for name, row in summarize(result.comparison).items()}


def _standing_facts(result: TuningResult, each: Standing) -> dict[str, Any]:
    lead = result.lead_over(each)
    return {
        "name": each.name,
        "score": each.score,
        "scores": list(each.scores),
        "cost": each.cost,
        "failed": each.failed,
        "pooled": each.pooled,
        "behind": None if lead is None else {"mean": lead[0], "standard_error": lead[1]},
        **costs_of_comparison(result)[each.name],
    }


def _method_facts(result: TuningResult, each: MethodTuning) -> dict[str, Any]:
    return {
        "method": each.method.entry.method,
        "settings": None if each.failed else each.settings,
        "spec": None if each.failed else str(spec_file(result.out, each)),
        "at_edge": each.choice.at_edge,
        "trials": [
            {
                "trial": trial.number,
                **each.method.space.settings(trial.point),
                "outcome": each.outcome(trial, len(result.rungs)),
                "values": [found.value for found in trial.scores],
                "cost": trial.score.cost,
                "problem": trial.score.problem or None,
            }
            for trial in each.choice.trials
        ],
    }


def share_in_words(tuning: Tuning) -> str:
    """`20 % of the train samples`."""
    return f"{percent(tuning.data.validation, 0)} of the train samples"
