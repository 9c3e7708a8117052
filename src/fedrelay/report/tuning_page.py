"""The page of a tuning: which method to use and why, its trials, then the report of the comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.files import write_atomically
from fedrelay.metrics.curves import mean_std
from fedrelay.report.comparison_files import write_comparison_files
from fedrelay.report.figure_specs import COSTS
from fedrelay.report.format import NONE, count, finite, moment, score, size, spread, tenths
from fedrelay.report.palette import DASHES, line_style
from fedrelay.report.report_content import document
from fedrelay.report.tuning_statement import FILE as TUNED
from fedrelay.report.tuning_summary import (
    COST_NAMES,
    budgets_in_words,
    cost_in_words,
    costs_of_comparison,
    lead_in_words,
    objective_in_words,
    reason,
    settings_in_words,
    share_in_words,
    statement_of_tuning,
    tuning_facts,
)
from fedrelay.report.web_page import web_page
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.tuning.result import MethodTuning, TuningResult, spec_file
from fedrelay.tuning.successive_halving import Trial

Section = dict[str, Any]


def write_tuning_files(result: TuningResult) -> Path:
    """Write `tuning.json`, the files of the comparison and the page `report.html`, and return the page."""
    compared = result.out / "comparison"
    for path, facts in (
        (result.out / "tuning.json", tuning_facts(result)),
        (compared / TUNED, statement_of_tuning(result)),  # first: all that shows the comparison says it
    ):
        write_atomically(path, f"{json.dumps(finite(facts), indent=1, ensure_ascii=False)}\n".encode())
    write_comparison_files(result.comparison, compared)
    page = result.out / "report.html"
    write_atomically(page, web_page(tuning_document(result)).encode())
    return page


def tuning_document(result: TuningResult) -> dict[str, Any]:
    """The document of the comparison, with what the tuning adds in front."""
    compared = document([result.out / "comparison"])
    best = result.recommended
    data = Path(result.tuning.data.name).stem
    title = f"Use {best.name} on {data}" if best is not None else f"No method to recommend on {data}"
    sections = [_advice(result), _learning_rates(result), _trials(result)]
    return {
        **compared,
        "title": title,
        "facts": {**compared["facts"], "tuned on": f"validation samples, {share_in_words(result.tuning)}"},
        "headlines": [{"number": number, "text": text} for number, text in _headlines(result)],
        "sections": [*sections, *compared["sections"]],
        "tables": {
            **compared["tables"],
            "advice": [
                {"method": each.name, "validation": each.validation_score, "score": each.score, "cost": each.cost}
                for each in result.standings
            ],
            "learning-rates": (rows := list(_trial_blocks(result))),
            "trials": rows,
        },
    }


def _headlines(result: TuningResult) -> Iterator[tuple[str, str]]:
    best, tuning, info = result.recommended, result.tuning, result.task.headline_info
    if best is None:
        yield NONE, reason(result)
        return
    yield best.name, f"recommended, with {settings_in_words(result[best.name])}"
    yield score(info, best.score), f"test {result.task.label} {objective_in_words(tuning)}"
    if tuning.tune.objective != "score":
        yield cost_in_words(tuning.tune.objective, best.cost), f"{COST_NAMES[tuning.tune.objective]} to the target"
    if result.rivals and result.lead_over(runner := result.rivals[0]) is not None:
        sure = {"clear": "", "close": ": may be chance", "unknown": ": one seed cannot tell if it is chance"}
        text = (
            f"against {runner.name} on test samples, mean ± standard error over seeds{sure[result.certainty(runner)]}"
        )
        yield lead_in_words(result, runner), text
    trials = sum(len(each.choice.trials) for each in result.methods)
    yield count(trials), f"trials of {count(len(result.methods))} methods: {budgets_in_words(tuning)}"


def _advice(result: TuningResult) -> Section:
    """All methods in order, with what their comparison on test samples cost."""
    task, objective, costs = result.task, result.tuning.tune.objective, costs_of_comparison(result)
    order = [each.name for each in result.comparison.methods]
    goal = [] if objective == "score" else [f"{COST_NAMES[objective]} to target"]
    unit = " %" if task.headline_info.percent else ""
    columns = [
        "Method", "tuned settings", "trials", f"validation {task.label}{unit}", f"test {task.label}{unit}",
        *goal, "lead of the best", "client updates",
        "traffic", "virtual time",
    ]  # fmt: skip
    rows = []
    for each in result.standings:
        validation = _spread([value for value in each.validation if value is not None], task)
        test = _spread(each.known_scores, task)
        best, cost = each == result.recommended, costs[each.name]
        chips = [{"text": "recommended", "kind": "best", "title": reason(result)}] if best else []
        chips += [{"text": "pooled data", "kind": "waiting", "title": "A baseline, never recommended"}] * each.pooled
        missing = f"{each.missing} without result"
        chips += [{"text": missing, "kind": "diverged", "title": ""}] * bool(each.missing)
        rows.append(
            [
                {"text": each.name, "dot": line_style("method", order.index(each.name))["colour"], "chips": chips},
                settings_in_words(result[each.name]),
                result[each.name].trial_count,
                {**validation, "bold": best},
                test,
                *([] if objective == "score" else [cost_in_words(objective, each.cost)]),
                "" if best or each.pooled else lead_in_words(result, each),
                tenths(cost["client_updates"]),
                size(cost["bytes"]),
                moment(cost["virtual_seconds"]),
            ]
        )
    specs = [
        {
            "summary": f"Spec of {each.name}",
            "lines": [["pre", spec_file(result.out, result[each.name]).read_text(encoding="utf-8")]],
        }
        for each in result.standings
    ]
    lead = (
        f"{reason(result)} Methods were tuned on validation samples: {budgets_in_words(result.tuning)}. These numbers "
        "are from other seeds, of the models that are best on validation samples. Validation samples choose the "
        "method, too; test samples have no say in it, so the choice flatters neither their scores nor the lead."
    )
    card = {
        "name": "advice",
        "choices": [
            {"name": "view", "label": "Shown", "style": "segments", "options": [["score", task.label], *_COST_VIEWS]}
        ],
        "figures": {"score": scores_figure(result), **{name: _costs(result, order, name) for name, _ in _COST_VIEWS}},
        "table": {"columns": columns, "rows": rows},
        "details": specs,
        "warning": " ".join(f"{warning}." for warning in result.warnings),
        "empty": "",
    }
    return {"id": "advice", "title": "Which method, and why", "lead": lead, "cards": [card]}


def _spread(values: Sequence[float], task: TaskFacts) -> dict[str, Any]:
    """A cell with the mean, and the standard deviation in small print."""
    mean, std = mean_std(values) if values else (None, None)
    level, sign, deviation = spread({"mean": mean, "std": std}, len(values), task.headline_info).partition(" ± ")
    return {"text": level, "small": sign + deviation}


_COST_VIEWS = (("client_updates", "client updates"), ("bytes", "traffic"), ("virtual_seconds", "virtual time"))


def scores_figure(result: TuningResult) -> dict[str, Any]:
    """The metric of every method on test samples, the best first."""
    task, order = result.task, [each.name for each in result.comparison.methods]
    form = "percent" if task.headline_info.percent else "number"
    rows = [
        {
            "name": each.name,
            "colour": line_style("method", order.index(each.name))["colour"],
            "value": each.score,
            "error": mean_std(each.known_scores)[1] if len(each.known_scores) > 1 else None,
        }
        for each in result.standings
        if each.known_scores
    ]
    return {
        "title": f"Test {task.label} of the tuned methods",
        "x": {"label": f"Test {task.label}", "format": form},
        "marks": [{"kind": "points", "by_method": True, "rows": rows, "format": form}] if rows else [],
        "note": "Mean and standard deviation over fresh seeds.",
    }


def _costs(result: TuningResult, order: Sequence[str], name: str) -> dict[str, Any]:
    """One cost of every method, in the order of the recommendation."""
    costs, (label, form) = costs_of_comparison(result), COSTS[name]
    rows = [
        {
            "name": each.name,
            "colour": line_style("method", order.index(each.name))["colour"],
            "value": costs[each.name][name],
            **({} if each.known_scores else {"missing": "failed"}),
        }
        for each in result.standings
    ]
    title = f"{label} of one run, mean over fresh seeds"
    groups = [{"title": title, "rows": rows}]
    mark = {"kind": "bars", "by_method": True, "groups": groups, "format": form, "ratio_to": rows[0]["name"]}
    return {"title": title, "marks": [mark], "note": f"Factors compare with {rows[0]['name']}."}


def _learning_rates(result: TuningResult) -> Section:
    """The metric on validation samples over the learning rate, rung by rung."""
    task = result.task
    label, form = f"Validation {task.label}", "percent" if task.headline_info.percent else "number"
    names = {str(place): _rung_name(result, place) for place in range(len(result.rungs))}
    dashes = "Dashes tell the values of a method's setting apart." if _has_hyperparameters(result) else ""
    figures = {
        str(place): {
            "title": f"{label} over the learning rate, {_rung_name(result, place)}",
            "x": {"label": "Learning rate", "format": "number", "scale": "log"},
            "y": {"label": label, "format": form},
            "marks": list(_lines(result, place)),
            "note": " ".join((dashes, *(f"{each}." for each in result.extensions))).strip(),
        }
        for place in range(len(result.rungs))
    }
    card = {
        "name": "learning-rates",
        "choices": [
            {"name": "rung", "label": "Rung", "style": "segments", "options": [list(each) for each in names.items()]}
        ],
        "legend": [
            {"name": method.name, **line_style("method", number)} for number, method in enumerate(_compared(result))
        ],
        "figures": {key: figure for key, figure in figures.items() if figure["marks"]},
        "empty": "No trial came to its first rung.",
    }
    lead = "What each trial came to on validation samples. After each rung but the last, the better half went on."
    return {"id": "learning-rates", "title": "Learning rates", "lead": lead, "cards": [card]}


def _compared(result: TuningResult) -> Sequence[MethodTuning]:
    """The methods with the numbers that they have in the comparison, so that colours agree."""
    return [each for each in result.methods if not each.failed]


def _has_hyperparameters(result: TuningResult) -> bool:
    return any(each.method.space.hyperparameter is not None for each in _compared(result))


def _rung_name(result: TuningResult, place: int) -> str:
    last = place == len(result.rungs) - 1
    return "whole budget" if last else f"1/{round(1 / result.rungs[place].share)} of the budget"


def _score_at(trial: Trial, place: int, rungs: int) -> float | None:
    """The value of a trial at a rung; extensions have the last one only."""
    number = place - (rungs - len(trial.scores)) if trial.extension else place
    return trial.scores[number].value if 0 <= number < len(trial.scores) else None


def _lines(result: TuningResult, place: int) -> Iterator[Mapping[str, Any]]:
    for number, method in enumerate(_compared(result)):
        setting = method.method.space.hyperparameter
        for dash, value in enumerate(setting.values if setting is not None else (None,)):
            points = sorted(
                (trial.point.lr, found)
                for trial in method.choice.trials
                if trial.point.value == value and (found := _score_at(trial, place, len(result.rungs))) is not None
            )
            if points:
                style = {**line_style("method", number), "dash": dash % len(DASHES)}
                x, y = zip(*points, strict=True)
                line = {"kind": "line", "name": method.name, "by_method": True, "dots": True, **style}
                yield {**line, "x": list(x), "y": list(y)}


def _trials(result: TuningResult) -> Section:
    """All trials, method by method."""
    read, rungs = result.task.headline_info, len(result.rungs)
    details = []
    for method in result.methods:
        setting = method.method.space.hyperparameter
        names = [setting.key] if setting is not None else []
        shares = [_rung_name(result, place) for place in range(rungs)]
        columns = ["trial", "learning rate", *names, *shares, "outcome"]
        rows = [
            [
                str(trial.number),
                f"{trial.point.lr:g}",
                *([str(trial.point.value)] if setting is not None else []),
                *(score(read, _score_at(trial, place, rungs)) for place in range(rungs)),
                {"text": (outcome := method.outcome(trial, rungs)), "bold": outcome == "best"},
            ]
            for trial in method.choice.trials
        ]
        summary = f"{method.name}: {'every trial failed' if method.failed else settings_in_words(method)}"
        details.append({"summary": summary, "table": {"columns": columns, "rows": rows}})
    lead = (
        f"Every trial of every method, in {result.out / 'trials'}. A trial that was stopped is a run that paused: "
        "'fedrelay resume' with its folder continues it."
    )
    return {
        "id": "trials",
        "title": "Trials",
        "lead": lead,
        "cards": [{"name": "trials", "figures": {}, "details": details, "empty": ""}],
    }


def _trial_blocks(result: TuningResult) -> Iterator[dict[str, Any]]:
    """The rows of the table of all trials."""
    for method in result.methods:
        for trial in method.choice.trials:
            yield {
                "method": method.name,
                "trial": trial.number,
                **method.method.space.settings(trial.point),
                **{
                    f"rung_{place + 1}": _score_at(trial, place, len(result.rungs))
                    for place in range(len(result.rungs))
                },
                "cost": trial.score.cost,
                "outcome": method.outcome(trial, len(result.rungs)),
            }
