"""Describes every figure once, as a plain value. The page and `drawing.py` draw any such value.

A figure is a dictionary with a `title`, a list of `marks`, and for lines the axes `x` and `y`; `note` is a caption. An
axis has a `label`, a number `format` (count, percent, bytes, seconds, number; points and change have a sign), and
optionally `scale: log`, `limits`, `ticks` (places and labels), and `zero`, which marks that place; without limits it
fits the data. A list may be a reference into the document: `{"ref": "methods/0/curves/round"}`. Colours are roles of
`palette.py`, or hex codes. The kinds of marks are:

- `line`: points (`x`, `y`) with an optional band of ± `error`; `dots` marks points; `layer` names an optional layer.
- `rule`: a horizontal line at `y`.
- `bars`: groups of rows, each with a `value`; `ratio_to` names the row that factors refer to.
- `points`: rows with a `value` and an `error`, or uneven `ends` instead.
- `stack`: rows of parts that add up.
- `mix`: one thin column per item, made of parts; `share` scales every column to 100 %. Neighbouring parts of the same
  colour are drawn as one.
- `cells`: a matrix of shaded cells, with optional `texts`; `diverging` has two colours, the second one for what is
  better: `up` or `down`.
- `sequences`: rows of numbered items, connected in order; `names` has names for the numbers. `flags` marks an item by
  its `row` and `place` and says why; an item with `absent` was planned and left out.

`by_method: true` marks rows or lines that belong to methods, which readers can hide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.client_class_counts import ClientClassCounts, Counts
from fedrelay.metrics.paired_differences import margin_of_mean
from fedrelay.report.format import count, plural, score
from fedrelay.report.palette import CLASSES, KINDS, SHADES, class_colours, line_style
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.comparison_result import ComparisonResult
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import REAL_SECONDS, Result
from fedrelay.runtime.run_status import FAILURES
from fedrelay.tasks.metric_info import MetricInfo
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts, metric_label

Figure = dict[str, Any]
Data = Mapping[str, Any]
"""The data part of a document."""

LOSSES = {"loss": ("Test loss", "number"), "train_loss": ("Training loss", "number")}
COSTS = {
    "round": ("Rounds", "count"),
    "client_updates": ("Client updates", "count"),
    "bytes": ("Traffic", "bytes"),
    "virtual_seconds": ("Virtual time", "seconds"),
}
REAL_TIME = {REAL_SECONDS: ("Real time", "seconds")}
"""Takes the place of virtual time where clients are real."""

TRAFFIC = {
    "transfers": ("Transfers by direction", "count"),
    "bytes": ("Bytes by direction", "bytes"),
    "payloads": ("Bytes by payload", "bytes"),
}
DIRECTIONS = {"s2c": "server to client", "c2s": "client to server", "c2c": "client to client"}

MOST_IN_ORDER = 60
"""Up to this many clients are drawn by number; more are ordered by their most frequent class."""

SHADES_IN_WORDS = "Shades run from the first class (dark) to the last (light)"
"""Where there are too many classes for colours of their own."""

MOST_COLUMNS = 1000
MOST_GROUPS_DRAWN = 300


def costs_of(data: Data) -> dict[str, tuple[str, str]]:
    """The costs that a document shows: name → label and number format."""
    return cost_names(real=bool(data["real_times"]))


def cost_names(*, real: bool) -> dict[str, tuple[str, str]]:
    """The same; with `real`, real time instead of virtual time."""
    return {name: text for name, text in COSTS.items() if name != "virtual_seconds"} | REAL_TIME if real else COSTS


def shown_metrics(task: TaskFacts) -> dict[str, tuple[str, str]]:
    """The metrics that have curves, the headline first: name → label and number format."""
    known = ("accuracy", "f1") if task.name == "classification" else tuple(task.metrics)
    names = dict.fromkeys(name for name in (task.headline, *known) if name not in LOSSES)
    found = {name: (capital(metric_label(name)), _number_format(task.metric_info(name))) for name in names}
    first = {task.headline: LOSSES[task.headline]} if task.headline in LOSSES else {}
    return {**first, **found, **LOSSES}


def _number_format(metric: MetricInfo) -> str:
    return "percent" if metric.percent else "number"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def score_of(data: Data, value: float | None) -> str:
    """A value of the headline as text."""
    return score(MetricInfo(percent=data["metric"]["format"] == "percent"), value)


def ref(*steps: str | int) -> dict[str, str]:
    """A reference to a list of the document."""
    return {"ref": "/".join(map(str, steps))}


def resolve(value: Any, document: Data) -> Any:
    """Follow a reference; return any other value as it is."""
    if not isinstance(value, dict) or "ref" not in value:
        return value
    found: Any = document
    for step in value["ref"].split("/"):
        found = found[int(step)] if isinstance(found, list) else found[step]
    return found


Band = Literal["deviation", "interval"]
"""The band around a mean: one standard deviation, or the 95 % confidence interval of the mean."""


def learning_curves(data: Data, metric: str, cost: str, band: Band = "deviation") -> Figure:
    """One metric over one cost: mean and band of every method, single seeds in their own layer."""
    marks: list[dict[str, Any]] = []
    for number, method in enumerate(data["methods"]):
        curves, path = method["curves"], f"methods/{number}/curves"
        if not curves["round"]:
            continue
        common = {"kind": "line", "name": method["name"], "by_method": True, **line_style("method", number)}
        line = {**common, "x": ref(path, cost), "y": ref(path, metric, "mean")}
        if cost != "round":
            line["rounds"] = ref(path, "round")
        if len(curves["runs"]) > 1:
            line["error"] = ref(path, metric, "std") if band == "deviation" else _margins(curves, metric)
            marks += (
                {**common, "x": ref(path, "runs", run, cost), "y": ref(path, "runs", run, metric), "layer": "seeds"}
                for run in range(len(curves["runs"]))
            )
        marks.append(line)
    if data["reference"] and metric == data["metric"]["name"]:
        marks.append(_reference_rule(data["reference"]["name"], data["reference"][metric]))
    return _curves_figure(data["metrics"][metric], cost, marks, _curves_note(data, metric, band))


def _margins(curves: Data, metric: str) -> list[float | None]:
    """Half the width of the confidence interval at every point; None where it is not known."""
    return [
        margin_of_mean(std, seeds) if std is not None and seeds > 1 else None
        for std, seeds in zip(curves[metric]["std"], curves["seeds"], strict=True)
    ]


def _curves_figure(metric: Sequence[str], cost: str, marks: Sequence[Mapping[str, Any]], note: str = "") -> Figure:
    """A figure of lines; `metric` is a label and a number format."""
    (metric_name, metric_format), (cost_name, cost_format) = metric, {**COSTS, **REAL_TIME}[cost]
    return {
        "title": f"{metric_name} over {cost_name.lower()}",
        "x": {"label": cost_name, "format": cost_format, **({"tip": "Round"} if cost == "round" else {})},
        "y": {"label": metric_name, "format": metric_format},
        "marks": list(marks),
        "note": note,
    }


def _reference_rule(name: str, level: float) -> dict[str, Any]:
    return {"kind": "rule", "name": name, "y": level, "colour": "soft", "dash": 1}


def _curves_note(data: Data, metric: str, band: Band) -> str:
    curves = [method["curves"] for method in data["methods"] if method["curves"]["round"]]
    if not curves:
        return ""
    seeds = max(max(each["seeds"]) for each in curves)
    alike = all(len(each["runs"]) == seeds for each in curves)
    uneven = any(min(each["seeds"]) < max(each["seeds"]) for each in curves)
    thinned = next((each for each in curves if each["evaluated"] > len(each["round"])), None)
    reference = data["reference"] if metric == data["metric"]["name"] else None
    bands = "one standard deviation" if band == "deviation" else "95 % confidence intervals of the mean"
    return " ".join(
        text
        for text in (
            f"Lines are means over {'' if alike else 'up to '}{seeds} seeds, bands are {bands}."
            if seeds > 1
            else "One seed, so there are no bands.",
            "Some seeds have finished more rounds than others; each mean is over the seeds that reached the round."
            if uneven
            else "",
            f"{count(len(thinned['round']))} of {count(thinned['evaluated'])} evaluations are drawn."
            if thinned
            else "",
            f"Dashed: {reference['name']}, {score_of(data, reference[metric])}." if reference else "",
        )
        if text
    )


def cost_to_target(data: Data, cost: str) -> Figure:
    """One cost until each target was reached, one bar per method; targets that no method reached are in the note."""
    methods, (name, form), metric = data["methods"], costs_of(data)[cost], data["metric"]["name"]
    reached = [
        place
        for place in range(len(data["targets"]))
        if any(method["summary"]["costs_to"][place]["round"] is not None for method in methods)
    ]
    groups = [
        {
            "title": f"to {score_of(data, data['targets'][place][metric])}",
            "rows": [_cost_row(method, number, place, cost) for number, method in enumerate(methods)],
        }
        for place in reached
    ]
    missed = [score_of(data, target[metric]) for place, target in enumerate(data["targets"]) if place not in reached]
    levels = [level for method in methods for level in method["curves"][metric]["mean"] if level is not None]
    which, best = ("highest", max) if data["metric"]["higher_is_better"] else ("lowest", min)
    several = any(len(method["curves"]["runs"]) > 1 for method in methods)
    label = f"{which} mean {data['metric']['label']} over seeds" if several else f"{which} {data['metric']['label']}"
    found = f" The {label} was {score_of(data, best(levels))}." if levels else ""
    with_cost = (each for place in reached for each in methods if each["summary"]["costs_to"][place].get(cost))
    first = next(with_cost, methods[0])["name"]
    mark = {"kind": "bars", "by_method": True, "groups": groups, "format": form, "ratio_to": first}
    return {
        "title": f"{name} to reach each target",
        "marks": [mark] if groups else [],
        "note": data["relative_targets"]
        or (f"No method reached {' or '.join(missed)} with every seed.{found}" if missed else ""),
    }


def _cost_row(method: Mapping[str, Any], number: int, place: int, cost: str) -> dict[str, Any]:
    costs = method["summary"]["costs_to"][place]
    row = {"name": method["name"], "colour": line_style("method", number)["colour"], "value": costs.get(cost)}
    if costs.get(cost) is None:
        failed = next((run["state"] for run in method["runs"] if run["state"] in FAILURES), "not reached")
        row["missing"] = failed if costs["round"] is None else "not recorded"
    return row


def final_results(data: Data) -> Figure:
    """The final score of every method with its deviation over seeds."""
    metric = data["metric"]
    last = f"{metric['name']}_last"
    rows = [
        {
            "name": method["name"],
            "colour": line_style("method", number)["colour"],
            "value": method["summary"][last]["mean"],
            "error": method["summary"][last]["std"] if len(method["curves"]["runs"]) > 1 else None,
            **_lost_seeds(method),
        }
        for number, method in enumerate(data["methods"])
        if method["curves"]["round"]
    ]
    used = min(data["last"], max((method["curves"]["evaluated"] for method in data["methods"]), default=0))
    label, form = f"{capital(metric['label'])}, mean of the last {plural(used, 'evaluation')}", metric["format"]
    mark = {"kind": "points", "by_method": True, "rows": rows, "format": form}
    return {
        "title": f"Final {metric['label']}",
        "x": {"label": label, "format": form},
        "marks": [mark] if rows else [],
        "note": " ".join(_notes_on_results(data, rows)),
    }


def _notes_on_results(data: Data, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if any(row["error"] is not None for row in rows):
        yield "Mean and standard deviation over seeds."
    for method in data["methods"]:
        if method["training"] == "alone" and method["curves"]["round"]:
            yield f"{method['name']}: the models of all clients on the same test samples, a mean over clients."


def _lost_seeds(method: Mapping[str, Any]) -> dict[str, str]:
    failed, seeds = sum(run["state"] in FAILURES for run in method["runs"]), len(method["runs"])
    return {"remark": f"{seeds - failed} of {seeds} seeds"} if failed else {}


def differences(data: Data) -> Figure:
    """The mean difference of every method to the baseline, with its confidence interval."""
    found, metric = data["differences"], data["metric"]
    form = difference_format(data)
    rows = [
        {
            "name": method["name"],
            "colour": line_style("method", number)["colour"],
            "value": each["mean"],
            "error": None if each["low"] is None else each["high"] - each["mean"],
            **({} if each["more_than_chance"] else {"remark": "may be chance"}),
        }
        for number, method in enumerate(data["methods"])
        if (each := found["methods"].get(method["name"])) is not None and each["mean"] is not None
    ]
    better = "right" if metric["higher_is_better"] else "left"
    unit = ", points" if form == "points" else ""
    label = f"{capital(metric['label'])} minus {found['baseline']}{unit}"
    better = f"further to the {better} is better"
    mark = {"kind": "points", "by_method": True, "rows": rows, "format": form}
    return {
        "title": f"Difference to {found['baseline']}",
        "x": {"label": label, "format": form, "zero": True, **_bounds(form)},
        "marks": [mark] if rows else [],
        "note": " ".join(f"{capital(text)}." for text in (found["interval"], better, *found["notes"])),
    }


FEW_CLIENT_ROWS = 12
"""Up to this many clients are drawn in the order of their numbers; more are sorted."""

MOST_CLIENT_ROWS = 60
"""Up to this many clients have a row of their own; more are drawn as a line, the worst first."""

_EFFECT_COLOURS = {"gains": "cell", "loses": "warn"}


def client_scores(data: Data, method: str) -> Figure:
    """The score of every client with one method."""
    metric = data["metric"]
    rows = [
        {"name": row["name"], "colour": "kind-0", "value": row["score"], "error": None}
        for row in data["gains"]["methods"][method]["rows"]
        if row["score"] is not None
    ]
    label = f"{capital(metric['label'])} on each client's own held-out samples"
    return _client_figure(f"{capital(metric['label'])} of every client, {method}", label, metric["format"], rows)


def client_gains(data: Data, method: str, note: str) -> Figure:
    """What every client gains by taking part, with its intervals."""
    found = data["gains"]["methods"][method]
    rows = [
        {
            "name": row["name"],
            "colour": _EFFECT_COLOURS.get(row["effect"], "soft"),
            "value": row["gain"],
            "error": None,
            "ends": row["ends"],
            "remark": row["effect"],
        }
        for row in found["rows"]
        if row["gain"] is not None
    ]
    unit = ", points" if difference_format(data) == "points" else ""
    label, form = f"Gain over training alone{unit}", difference_format(data)
    figure = _client_figure(f"What every client gains with {method}", label, form, rows, zero=True)
    lowest, highest = _bounds(form).get("bounds", (-math.inf, math.inf))
    cut = any(row["ends"] and (row["ends"][0] < lowest or row["ends"][1] > highest) for row in rows)
    beyond = " Those without an end mark go further than any difference can." if cut else ""
    colours = "Further to the right is better. Blue: gains for certain, orange: loses for certain, grey: unclear."
    words = f"{colours} {note}{beyond}" if len(rows) <= MOST_CLIENT_ROWS else ""
    return {**figure, "note": f"{found['who_loses']} {words}".strip()}


def _client_figure(
    title: str, label: str, form: str, rows: Sequence[Mapping[str, Any]], *, zero: bool = False
) -> Figure:
    """A row for each client, or a line through all of them."""
    if len(rows) > FEW_CLIENT_ROWS:
        rows = sorted(rows, key=lambda row: float(row["value"]))
    if len(rows) <= MOST_CLIENT_ROWS:
        mark: dict[str, Any] = {"kind": "points", "rows": list(rows), "format": form}
        axis = {"label": label, "format": form, "zero": zero, **_bounds(form)}
        return {"title": title, "x": axis, "marks": [mark] if rows else []}
    values = [row["value"] for row in rows]
    line = {"kind": "line", "name": "clients", "x": list(range(1, len(values) + 1)), "y": values, "dots": False}
    marks = [{**line, **line_style("method", 0)}, *([{**_reference_rule("no gain", 0.0)}] if zero else [])]
    return {
        "title": title,
        "x": {"label": "Clients, the worst first", "format": "count"},
        "y": {"label": label, "format": form},
        "marks": marks,
    }


def _bounds(form: str) -> dict[str, Any]:
    """What an axis never goes beyond: no share differs by more than 100 points, whatever an interval says."""
    return {"bounds": (-1.0, 1.0)} if form == "points" else {}


def difference_format(data: Data) -> str:
    """How a difference of the headline is written."""
    return "points" if data["metric"]["format"] == "percent" else "change"


def traffic(data: Data, view: str) -> Figure:
    """Transfers or bytes of every method, split by direction or payload."""
    title, form = TRAFFIC[view]
    known = [method for method in data["methods"] if method["traffic"][view]]
    keys = list(dict.fromkeys(key for method in known for key in method["traffic"][view]))
    first = len(DIRECTIONS) if view == "payloads" else 0  # payloads do not have the colours of directions
    parts = [
        {"name": DIRECTIONS.get(key, key), "colour": _kind_colour(first + place)} for place, key in enumerate(keys)
    ]
    values = [[method["traffic"][view].get(key, 0) for key in keys] for method in known]
    mark = {
        "kind": "stack",
        "by_method": True,
        "rows": [method["name"] for method in known],
        "parts": parts,
        "values": values,
        "format": form,
    }
    return {"title": title, "marks": [mark] if any(map(any, values)) else []}


def fault_events(data: Data) -> Figure:
    """How often each kind of fault happened, split by how it was handled."""
    kinds, handling = Counter[str](), Counter[str]()
    found: Counter[tuple[str, str]] = Counter()
    for fault in data["faults"]:
        kinds[fault["what"]] += fault["times"]
        handling[fault["done"]] += fault["times"]
    ranked = [name for name, _ in handling.most_common()]
    kept = ranked if len(ranked) <= KINDS else [*ranked[: KINDS - 1], "other"]
    for fault in data["faults"]:
        found[fault["what"], fault["done"] if fault["done"] in kept else "other"] += fault["times"]
    rows = [name for name, _ in kinds.most_common()]
    mark = {
        "kind": "stack",
        "rows": rows,
        "parts": [{"name": name, "colour": _kind_colour(place)} for place, name in enumerate(kept)],
        "values": [[found[row, name] for name in kept] for row in rows],
        "format": "count",
    }
    return {"title": "Fault events by kind, and how they were handled", "marks": [mark] if rows else []}


def _kind_colour(place: int) -> str:
    return f"kind-{place % KINDS}"


def client_classes(data: Data, number: int) -> Figure:
    """The class mix of every client of a federation."""
    federation = data["federations"][number]
    counts = np.array(federation["counts"])
    shown = _shown_clients(counts)
    uncounted = federation["clients"] - len(counts)
    refs = {name: ref("federations", number, name) for name in ("counts", "parts")}
    figure = _class_mix("clients", counts, shown.tolist(), federation["class_names"], refs)
    runs = [run for run in data.get("runs", ()) if run["federation"] == number and run["names"]]
    if runs:
        figure["marks"][0]["names"] = [runs[0]["names"][client] for client in shown]
    classes = "1 class" if federation["classes"] == 1 else f"{count(federation['classes'])} classes"
    notes = (
        f"{plural(federation['clients'], 'client')}, {count(federation['samples'])} samples, {classes}.",
        _sizes(federation["smallest"], federation["largest"]) if federation["clients"] > 1 else "",
        "Clients are ordered by their most frequent class." if len(counts) > MOST_IN_ORDER else "",
        f"{count(len(shown))} of them are drawn." if len(shown) < len(counts) else "",
        f"Classes of {count(uncounted)} more clients were not counted." if uncounted else "",
        ""
        if federation["median_cpd"] is None
        else f"Median class distance of two clients (CPD): {federation['median_cpd']:.3f}.",
    )
    return {**figure, "note": " ".join(filter(None, (*notes, figure["note"])))}


def _sizes(smallest: int, largest: int) -> str:
    """Columns are equally high, however many samples a client has."""
    if smallest == largest:
        return f"Each has {plural(smallest, 'sample')}."
    return f"The smallest has {plural(smallest, 'sample')}, the largest {count(largest)}."


def group_classes(data: Data, number: int) -> Figure:
    """The class mix of every group of a run."""
    run = data["runs"][number]
    groups = run["group_counts"]
    names = data["federations"][run["federation"]]["class_names"]
    counts = np.array([group["counts"] for group in groups])
    refs = {"parts": ref("federations", run["federation"], "parts")}
    figure = _class_mix("groups", counts, range(len(groups)), names, refs)
    figure["marks"][0]["names"] = [group["group"] for group in groups]
    drawn = f", {count(len(groups))} of them drawn" if len(groups) < run["groups_in_all"] else ""
    balance = sum(group["balance"] for group in groups) / len(groups)
    note = (
        f"{plural(run['groups_in_all'], 'group')}{drawn}. The rarest class of a group has {balance:.2g} times the "
        f"samples of its most frequent class, on average. {figure['note']}"
    )
    return {**figure, "note": note.strip()}


def _class_mix(
    noun: str, counts: Counts, shown: Iterable[int], names: Sequence[str] = (), refs: Data = MappingProxyType({})
) -> Figure:
    """Columns of class shares; with very many classes, neighbouring classes share a shade and the figure says so.

    `names` are those of the classes, by default their numbers. `refs` replace what the document holds as well.
    """
    names = names or list(map(str, range(counts.shape[1])))
    merged, shaded = len(names) > SHADES or any("–" in name for name in names), len(names) > CLASSES
    mark = {"kind": "mix", "rows": list(shown), "parts": class_parts(names), "counts": counts.tolist(), "share": True}
    mark |= refs
    return {
        "title": f"Class mix of {noun}" + (f" (neighbouring classes merged to {SHADES} shades)" if merged else ""),
        "x": {"label": noun.removesuffix("s").capitalize()},
        "y": {"label": "Share of samples", "format": "percent"},
        "marks": [mark],
        "note": f"{SHADES_IN_WORDS}{', and neighbouring classes share one' if merged else ''}." if shaded else "",
    }


def class_parts(names: Sequence[str]) -> list[dict[str, str]]:
    """The name and the colour of every class."""
    return [
        {"name": f"{'classes' if '–' in name else 'class'} {name}", "colour": colour}
        for name, colour in zip(names, class_colours(len(names)), strict=True)
    ]


def _shown_clients(counts: Counts) -> NDArray[np.int64]:
    """The clients to draw: by number, or many of them by their most frequent class and its share."""
    share = counts.max(axis=1) / np.maximum(1, counts.sum(axis=1))
    by_class = np.lexsort((-share, counts.argmax(axis=1)))
    order = by_class if len(counts) > MOST_IN_ORDER else np.arange(len(counts))
    return order[:: -(-len(order) // MOST_COLUMNS)]


def forgetting(
    chain: Mapping[str, Any], note: str = "", source: Any = None, metric: str = CLASSIFICATION.measured_on_clients
) -> Figure:
    """The score on each earlier client after every hop of a chain, such as the accuracy."""
    transfer, clients = chain["backward_transfer"], list(map(str, chain["clients"]))
    if transfer is not None:
        meaning = "the model forgets earlier clients" if transfer < 0 else "later clients help earlier ones"
        note = f"Backward transfer {100 * transfer:+.1f} points: on average, {meaning}. {note}"
    mark = {
        "kind": "cells",
        "rows": clients,
        "columns": clients,
        "values": chain["matrix"] if source is None else source,
        "format": "percent",
        "limits": [0, 1],
        "row_title": "After client",
        "column_title": f"{capital(metric_label(metric))} in % on client",
        "since": "just after training there",
    }
    return {"title": f"Forgetting along a chain, round {chain['round']}", "marks": [mark], "note": note.strip()}


def routes(data: Data, run: int, place: int) -> Figure:
    """The routes of one round as rows of clients."""
    found, federation = data["runs"][run]["rounds"][place], data["runs"][run]["federation"]
    path = f"runs/{run}/rounds/{place}"
    mark = {**_sequences(found), "rows": ref(path, "routes")}
    if data["runs"][run]["names"]:
        mark["names"] = ref("runs", run, "names")
    if "faults" in found:
        mark["rows"], mark["flags"] = _with_absent_clients(found["routes"], found["faults"])
    if federation is not None:
        mark |= {name: ref("federations", federation, name) for name in ("counts", "parts")}
    return _routes_figure(found["caption"], mark)


def plan_routes(plan: RoundPlan) -> Figure:
    """The routes of a planned round, drawn like those of a round that ran."""
    found: dict[str, Any] = {
        "routes": [list(route.clients) for route in plan.routes],
        "handover": plan.handover,
        "merges": plan.merges,
    }
    if any(route.slot is not None for route in plan.routes):
        found["slots"] = [route.slot for route in plan.routes]
    title = f"Round {plan.round}: {plural(len(plan.routes), 'route')}, {plural(plan.client_updates, 'client update')}"
    return _routes_figure(title, {**_sequences(found), "rows": found["routes"]})


def _routes_figure(title: str, mark: Mapping[str, Any]) -> Figure:
    return {"title": title, "x": {"label": "Hop"}, "y": {"label": "Route"}, "marks": [mark]}


def _sequences(found: Mapping[str, Any]) -> dict[str, Any]:
    """The mark of a round's routes: where models come from and where they go."""
    mark: dict[str, Any] = {"kind": "sequences", "item": "Client", "row": "route"}
    if "slots" in found:
        mark["before"] = [None if slot is None else f"slot {slot}" for slot in found["slots"]]
    elif found["handover"] in ("direct", "server", "sealed"):
        mark["before"] = "server"
    if found["handover"] in ("direct", "server", "sealed"):
        mark["after"] = "merge" if found["merges"] and len(found["routes"]) > 1 else "server"
        if not found["merges"] and "slots" in found:
            mark["after"] = mark["before"]
    if found["handover"] in ("server", "sealed"):
        mark["dotted"] = True
    return mark


def _with_absent_clients(
    routes: Sequence[Sequence[int]], faults: Sequence[Mapping[str, Any]]
) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Routes with the clients that were planned and left out, and a flag for every fault event at a client.

    The hop of an event is its place in the planned route, so that absent clients are inserted from first to last.
    """
    rows = [list(route) for route in routes]
    absent: set[tuple[int, int]] = set()
    known = [each for each in faults if 0 <= each.get("route", -1) < len(rows) and each.get("client", -1) >= 0]
    for fault in sorted(known, key=lambda each: int(each.get("hop", 0))):
        route, client = fault["route"], fault["client"]
        if client not in rows[route]:
            rows[route].insert(max(0, fault.get("hop", len(rows[route]))), client)
            absent.add((route, client))
    flags = [
        {
            "row": each["route"],
            "place": rows[each["route"]].index(each["client"]),
            "what": each["what"],
            "done": each["done"],
            **({"absent": True} if (each["route"], each["client"]) in absent else {}),
        }
        for each in known
    ]
    return rows, flags


def score_curves(
    histories: Mapping[str, Sequence[Sequence[Row]]], cost: str = "round", task: TaskFacts = CLASSIFICATION
) -> Figure:
    """The headline over a cost, from the histories of every method's seeds; means are over seeds that came so far."""
    marks = []
    for number, (name, rows) in enumerate(histories.items()):
        x, y = ([[row[key] for row in rounds if row] for rounds in zip_longest(*rows)] for key in (cost, task.headline))
        known = [[np.nan if value is None else value for value in values] for values in y]
        mark = {"kind": "line", "name": name, "x": [*map(_plain_mean, x)], "y": [*map(_plain_mean, known)]}
        error = {"error": [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in known]}
        marks.append({**mark, **(error if len(rows) > 1 else {}), **line_style("method", number)})
    return _curves_figure(shown_metrics(task)[task.headline], cost, marks)


def _plain_mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def comparison_curves(outcome: ComparisonResult) -> list[Figure]:
    """The headline over rounds and over traffic (client updates if nothing was sent); empty without results."""
    shown = [each for each in outcome.methods if each.results and each.training != "pooled"]
    shown = shown or [each for each in outcome.methods if each.results]
    if not shown:
        return []
    histories = {each.name: [result.history for result in each.results] for each in shown}
    sent = any(result.bytes for each in shown for result in each.results)
    costs = ("round", "bytes" if sent else "client_updates")
    figures = [score_curves(histories, cost, outcome.task) for cost in costs]
    if outcome.reference not in (1, None):
        name = reference_name(outcome)
        for figure in figures:
            figure["marks"].append(_reference_rule(name, outcome.reference))
    seeds = max(len(each.results) for each in shown)
    if seeds > 1:
        figures[0]["title"] = f"Mean ± standard deviation of {seeds} seeds"
        figures[1]["title"] = ""
    return figures


def reference_name(outcome: ComparisonResult) -> str:
    """What targets refer to."""
    given = outcome.comparison.eval.reference is not None
    return f"reference {outcome.task.label}" if given else "centralised training"


def privacy_curves(outcome: ComparisonResult) -> Figure | None:
    """The headline over the largest ε of any client; None if no run is private."""
    private = [each for each in outcome.methods if any(_epsilons(result) for result in each.results)]
    if not private:
        return None
    marks: list[dict[str, Any]] = []
    for number, entry in enumerate(private):
        x, y = np.mean([_epsilons(result) for result in entry.results], axis=0).T.tolist()
        marks.append({"kind": "line", "name": entry.name, "x": x, "y": y, **line_style("method", number)})
    others = [each for each in outcome.methods if each.results and each not in private]
    for number, entry in enumerate(others, start=len(private)):
        if level := entry.mean_std(lambda result: result.score_last):
            name = f"{entry.name}, not private"
            marks.append({"kind": "rule", "name": name, "y": level[0], **line_style("method", number)})
    label, form = shown_metrics(outcome.task)[outcome.task.headline]
    return {
        "title": f"{label} over privacy spent",
        "x": {"label": "Largest ε of any client", "format": "number", "scale": "log"},
        "y": {"label": label, "format": form},
        "marks": marks,
    }


def _epsilons(result: Result) -> list[tuple[float, float]]:
    scored = (row for row in result.history if row.get("epsilon") and row.get(result.metric) is not None)
    return [(row["epsilon"], row[result.metric]) for row in scored]


def partition_figures(partition: ClientClassCounts) -> list[Figure]:
    """Samples of every client, and below it the class mix."""
    counts = partition.counts
    order = _shown_clients(counts)
    mix = _class_mix("clients", counts[order], range(len(order)))
    mix["marks"][0]["names"] = partition.counted[order].tolist()
    if len(counts) > MOST_IN_ORDER:
        mix["x"]["label"] = "Clients, ordered by their most frequent class"
    sizes = partition.sizes[partition.counted[order]]
    bars = {"kind": "mix", "rows": list(range(len(order))), "parts": [{"name": "samples", "colour": "soft"}],
            "counts": sizes[:, None].tolist(), "names": []}  # fmt: skip
    title = f"{partition.name}: {plural(partition.clients, 'client')}, {count(partition.samples)} samples"
    return [{"title": title, "y": {"label": "Samples", "format": "count"}, "marks": [bars], "height": 0.4}, mix]


def grouping_figures(
    name: str, noun: str, counts: NDArray[np.int64], distances: NDArray[np.float64], furthest: float, median: str
) -> tuple[Figure, Figure]:
    """The class mix of groups, and the distance of every pair."""
    mix = _class_mix(noun, counts, range(len(counts)))
    mix |= {"title": name, "x": {}}
    mix["marks"][0]["names"] = []
    cells = {"kind": "cells", "rows": [], "columns": [], "values": distances.tolist(), "format": "number",
             "limits": [0, furthest], "gamma": 0.5}  # fmt: skip
    return mix, {"title": f"median CPD {median}", "marks": [cells]}


def shown_groups(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups by their most frequent class, at most 300."""
    order = np.argsort(counts.argmax(axis=1), kind="stable")
    return order[np.linspace(0, len(order) - 1, min(len(order), MOST_GROUPS_DRAWN)).astype(np.int64)]


def legend(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """Names, colours and dashes of the lines and parts in figures, each once."""
    found: dict[str, dict[str, Any]] = {}
    for figure in figures:
        for mark in figure["marks"]:
            if mark["kind"] in ("line", "rule") and "layer" not in mark:
                found.setdefault(mark["name"], {"line": True, **mark})
            elif mark["kind"] == "stack" or (mark["kind"] == "mix" and mark.get("share")):
                few = mark["parts"] if len(mark["parts"]) <= 10 else ()
                found |= {part["name"]: part for part in few if part["name"] not in found}
    return list(found.values())
