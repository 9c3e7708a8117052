"""A tuning in words and numbers, the same for the terminal, the page and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedrelay.report.comparison_summary import summarize
from fedrelay.report.format import NONE, count, percent, plural, score, settings_line, size
from fedrelay.report.tuning_statement import Statement
from fedrelay.runtime.record_lines import Row
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


def statement_of_tuning(result: TuningResult) -> Statement:
    """What was tuned and how, for everything that shows the comparison."""
    tuning, tune = result.tuning, result.tuning.tune
    chosen = {each.name: each.settings for each in result.methods if not each.failed}
    grids = {each.name: _grid(each) for each in result.methods}
    halving = f", successive halving over {plural(tune.rungs, 'rung')}" if tune.rungs > 1 else ""
    rates = [rate for grid in grids.values() for rate in grid["train.lr"]]
    others = dict.fromkeys(key for grid in grids.values() for key in grid if key != "train.lr")
    listed = "; ".join(f"{name}: {settings_line(values)}" for name, values in chosen.items())
    seeds = ", ".join(map(str, tuning.tuning_seeds))
    text = (
        f"Every method was tuned with the same budget: {budgets_in_words(tuning)}, "
        f"{objective_in_words(tuning)}{halving}, judged on validation samples ({share_in_words(tuning)}) with "
        f"the seeds {seeds}. Tried: learning rates from {min(rates):g} to {max(rates):g}"
        f"{''.join(f', {key}' for key in others)}. Chosen: {listed}. "
        "The comparison has fresh seeds and test samples that had no say in the choice."
    )
    return {
        "tuned": True,
        "text": text,
        "trials": tune.trials,
        "rungs": tune.rungs,
        "objective": tune.objective,
        "budget": objective_in_words(tuning),
        "validation": tuning.data.validation,
        "seeds": list(tuning.tuning_seeds),
        "grids": grids,
        "chosen": chosen,
    }


def _grid(each: MethodTuning) -> dict[str, list[Any]]:
    """The values that were tried, those beyond the edge of the grid as well."""
    setting = each.method.space.hyperparameter
    rates = sorted({trial.point.lr for trial in each.choice.trials})
    return {"train.lr": rates, **({} if setting is None else {setting.key: list(setting.values)})}


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
                "hyperparameter": None
                if (found := each.method.space.hyperparameter) is None
                else {found.key: list(found.values)},
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
    return settings_line(each.settings)


def cost_in_words(objective: Objective, cost: float | None) -> str:
    """A cost to the target; `not reached` if a seed missed it."""
    if cost is None:
        return "not reached"
    return size(cost) if objective == "bytes" else f"{cost:.3g} h" if objective == "hours" else count(round(cost, 1))


def reason(result: TuningResult) -> str:
    """Why the recommended method is recommended, in a few sentences."""
    best = result.recommended
    if best is None:
        return "No method has a number for every seed of the comparison, so none is recommended."
    tuning, info, label, seeds = result.tuning, result.task.headline_info, result.task.label, len(result.tuning.seeds)
    validation, test = score(info, best.validation_score), score(info, best.score)
    over = f"{count(seeds)} fresh seed{'s' if seeds > 1 else ''}"
    if tuning.tune.objective == "score":
        said = (
            f"{best.name} has the best validation {label} {objective_in_words(tuning)}, with {over}: {validation}, "
            f"and {test} on test samples."
        )
    elif best.cost is None:
        target = score(info, tuning.stop.target)
        return (
            f"No method reached {target} with every seed; {best.name} has the best validation {label}: {validation}, "
            f"and {test} on test samples."
        )
    else:
        cost = cost_in_words(tuning.tune.objective, best.cost)
        name = "" if tuning.tune.objective in ("bytes", "hours") else f" {COST_NAMES[tuning.tune.objective]}"
        said = (
            f"{best.name} reaches {score(info, tuning.stop.target)} on validation samples at the least cost with "
            f"{over}: {cost}{name}; it has {test} on test samples."
        )
    return " ".join((said, *_leads_in_words(result)))


def _leads_in_words(result: TuningResult) -> Iterator[str]:
    """How sure the lead over the other methods is."""
    rivals, where = result.rivals, " on test samples" if result.tuning.tune.objective == "score" else ""
    missed = [each.name for each in rivals if result.lead_over(each) is None]
    close = [each.name for each in rivals if result.certainty(each) == "close"]
    if missed:
        yield f"Not every seed of {', '.join(missed)} reached it."
    if len(missed) == len(rivals):
        return
    if len(result.tuning.seeds) == 1:
        yield "One seed cannot tell whether the lead is more than chance: use more --seeds."
    elif close:
        yield f"The lead over {', '.join(close)}{where} may be chance: use more --seeds to be sure."
    else:
        others = "all others that did" if missed else "every other method"
        yield f"The lead over {others}{where} is more than chance."


def lead_in_words(result: TuningResult, other: Standing) -> str:
    """`+3.1 ± 1.0`: how much better the recommended method is, with the standard error."""
    lead, objective = result.lead_over(other), result.tuning.tune.objective
    if lead is None:
        return NONE
    factor = 100 if objective == "score" and result.task.headline_info.percent else 1
    error = f" ± {factor * lead.standard_error:.2g}" if len(result.tuning.seeds) > 1 else ""
    return f"{factor * lead.mean:+.3g}{error}"


def budgets_in_words(tuning: Tuning) -> str:
    """`12 trials of each method, and at most 3 more where the best learning rate is at the edge`."""
    tune = tuning.tune
    more = (
        f", and at most {tune.extensions} more where the best learning rate is at the edge" if tune.extensions else ""
    )
    return f"{count(tune.trials)} trials of each method{more}"


def costs_of_comparison(result: TuningResult) -> dict[str, Row]:
    """Mean costs of the runs of the comparison, by method."""
    names = ("client_updates", "bytes", "virtual_seconds")
    return {name: {each: row[each] for each in names} for name, row in summarize(result.comparison).items()}


def _standing_facts(result: TuningResult, each: Standing) -> dict[str, Any]:
    lead = result.lead_over(each)
    return {
        "name": each.name,
        "validation_score": each.validation_score,
        "validation_scores": list(each.validation),
        "score": each.score,
        "scores": list(each.scores),
        "cost": each.cost,
        "missing": each.missing,
        "pooled": each.pooled,
        "behind": None
        if lead is None
        else {"mean": lead.mean, "standard_error": lead.standard_error, "certainty": result.certainty(each)},
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
