"""Tables of a tuning for a terminal of 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedrelay.metrics.curves import mean_std
from fedrelay.report.format import count, moment, plural, score, score_name, size, spread, whole
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table
from fedrelay.report.tuning_summary import (
    COST_NAMES,
    cost_in_words,
    costs_of_comparison,
    lead_in_words,
    objective_in_words,
    reason,
    settings_in_words,
    share_in_words,
)
from fedrelay.runtime.record_lines import Row
from fedrelay.tuning.planned_costs import PlannedCosts, total
from fedrelay.tuning.result import TuningResult
from fedrelay.tuning.settings import Tuning


def tuning_heading(tuning: Tuning) -> RenderableType:
    """Describe what is about to be tuned."""
    tune = tuning.tune
    names = ", ".join(entry.name for entry in tuning.methods)
    halving = f"; the better half goes on at {plural(tune.rungs - 1, 'rung')}" if tune.rungs > 1 else ""
    edge = f"at most {plural(tune.extensions, 'trial')} more, where the best learning rate is there"
    rows = {
        "budget": objective_in_words(tuning)
        if tune.objective == "score"
        else f"{COST_NAMES[tune.objective]} to {tuning.stop.target:g}, {objective_in_words(tuning)}",
        "trials": f"{tune.trials} of each method, seeds {', '.join(map(str, tuning.tuning_seeds))}{halving}",
        **({"at the edge": edge} if tune.extensions else {}),
        "judged on": f"validation samples, {share_in_words(tuning)}",
        "compared with": f"fresh seeds {', '.join(map(str, tuning.seeds))}; test samples have no say in the choice",
    }
    return Group(Text(f"Tuning {names} on {tuning.data.name}", style="bold"), facts_grid(rows))


def planned_table(planned: Sequence[PlannedCosts]) -> RenderableType:
    """What would be run, and what it would cost."""
    table = plain_table("method", "what is tried", "runs", "updates", "traffic", "virtual time")
    for column in table.columns[2:]:
        column.justify, column.no_wrap = "right", True
    for each in planned:
        rates, setting = each.method.space.rates, each.method.space.hyperparameter
        tried = f"lr {rates[0]:g} … {rates[-1]:g}"
        tried += "" if setting is None else f"\n{setting.key} {', '.join(map(str, setting.values))}"
        known = _sums(total([each.tuning, each.comparison])) if each.full is not None else ("unknown", "", "")
        table.add_row(each.method.name, tried, count(each.runs), *known)
    cost = total([row for each in planned for row in (each.tuning, each.comparison)])
    table.add_row(Text("all", style="bold"), "", count(sum(each.runs for each in planned)), *_sums(cost))
    hints = ["Nothing was run. Trials beyond these learning rates (tune.extensions) are not counted."]
    if any(each.full is None for each in planned):
        hints.append("Unknown: groups depend on models that clients train first.")
    return Group(table, Text(), *(Text(f"  {hint}", style="dim") for hint in hints))


def _sums(cost: Row) -> tuple[str, str, str]:
    return whole(cost["client_updates"]), size(cost["bytes"]), moment(cost["virtual_seconds"])


def tuning_tables(result: TuningResult) -> RenderableType:
    """The recommendation, the methods in order, and notes."""
    task, objective, costs = result.task, result.tuning.tune.objective, costs_of_comparison(result)
    goal = () if objective == "score" else (f"{COST_NAMES[objective]}\nto target",)
    heads = (
        "\nmethod",
        f"test\n{score_name(task)}",
        *goal,
        "lead of\nthe best",
        "\nupdates",
        "\ntraffic",
        "virtual\ntime",
    )
    table = plain_table(*heads, numeric=True)
    for each in result.standings:
        mean, std = mean_std(each.known_scores) if each.known_scores else (None, None)
        level = spread({"mean": mean, "std": std}, len(each.known_scores), task.headline_info)
        best = each == result.recommended
        cost = costs[each.name]
        table.add_row(
            f"{each.name}{' (pooled data)' if each.pooled else ''}{'*' if each.missing else ''}",
            Text(level, style="bold" if best else ""),
            *(() if objective == "score" else (cost_in_words(objective, each.cost),)),
            "" if best or each.pooled else lead_in_words(result, each),
            whole(cost["client_updates"]),
            size(cost["bytes"]),
            moment(cost["virtual_seconds"]),
        )
    chosen = plain_table("\nmethod", "\nchosen settings", "\ntrials", f"validation\n{task.label}", "with fresh\nseeds")
    for column in chosen.columns[2:]:
        column.justify, column.no_wrap = "right", True
    fresh = {each.name: each.validation_score for each in result.standings}
    for method in result.methods:
        values = (method.choice.best.score.value, fresh.get(method.name))
        settings = "every trial failed" if method.failed else settings_in_words(method)
        chosen.add_row(
            method.name, settings, method.trial_count, *(score(task.headline_info, value) for value in values)
        )
    marks = ["* a seed has no result"] if any(each.missing for each in result.standings) else []
    notes = [_indented(note, "dim") for note in (*marks, *result.extensions)]
    notes += [_indented(warning, "yellow") for warning in result.warnings]
    below: list[RenderableType] = [Text(), *notes] if notes else []
    return Group(_indented(reason(result), "bold"), Text(), table, Text(), chosen, *below)


def _indented(text: str, style: str) -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))


def tuning_advice(result: TuningResult) -> RenderableType:
    """Where the files of a tuning are, and what to do next."""
    out = result.out
    rows = {"page": f"{out}/report.html", "all numbers": f"{out}/tuning.json", "best of each": f"{out}/best"}
    if result.recommended is not None:
        rows["next"] = f"fedrelay run {shlex.quote(str(out / 'recommended.yaml'))}"
    return facts_grid(rows)
