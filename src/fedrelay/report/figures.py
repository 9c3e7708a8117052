"""Every figure of a page as a picture for papers, drawn from the same document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from fedrelay.cost.ledger import KINDS
from fedrelay.report.document import Document
from fedrelay.report.fate import FAILURES
from fedrelay.report.format import percent, plural
from fedrelay.report.plots import (
    GREY,
    LINE_COLOURS,
    STYLE,
    class_colours,
    draw_bars,
    draw_recall,
    line_look,
    save_figure,
)
from fedrelay.report.recall import Recall

COSTS = {
    "round": "rounds",
    "client_updates": "client updates",
    "bytes": "traffic, bytes",
    "virtual_seconds": "virtual time, seconds",
}
MEASURES = {"accuracy": "test accuracy", "loss": "test loss"}
MOST_ROUTES = 40
"""So many routes of a round are drawn."""

Drawing = Callable[[Figure], None]


def write_figures(document: Document, folder: Path) -> list[Path]:
    """One PNG file for each figure that has something to show."""
    written = []
    for name, height, draw in _drawings(document):
        path = folder / f"{name}.png"
        with rc_context(STYLE):
            figure = Figure(figsize=(7.2, height), layout="constrained")
            draw(figure)
            save_figure(figure, path)
        written.append(path)
    for name, recall in _recalls(document):
        path = folder / f"{name}.png"
        draw_recall(recall, path)
        written.append(path)
    return written


def _drawings(document: Document) -> Iterator[tuple[str, float, Drawing]]:
    """Name, height and how it is drawn."""
    methods = [(number, method) for number, method in enumerate(document["methods"]) if method["course"]["round"]]
    names = _file_names(document)
    if methods:
        for measure in MEASURES:
            yield f"curves-{measure}", 5.6, partial(_curves, document=document, measure=measure)
        yield "targets", 5.2, partial(_targets, document=document)
        yield "results", 1 + 0.34 * len(methods), partial(_results, methods=methods)
        yield (
            "communication",
            1.2 + 0.4 * len(methods),
            partial(_communication, methods=[method for _, method in methods]),
        )
    if document["faults"]:
        kinds = len({fault["what"] for fault in document["faults"]})
        yield "faults", 1.2 + 0.34 * kinds, partial(_faults, faults=document["faults"])
    for number, federation in enumerate(document["federations"]):
        draw = partial(_mixes, rows=federation["counts"], noun="client", in_all=federation["clients"])
        yield _numbered("federation", number), 2.6, draw
    for journey in _first_seeds(document["journeys"]):
        name = names[journey["method"]]
        if journey["mixes"]:
            rows = [group["counts"] for group in journey["mixes"]]
            yield f"groups-{name}", 2.6, partial(_mixes, rows=rows, noun="group", in_all=journey["groups_in_all"])
        if journey["rounds"]:
            stage = journey["rounds"][0]
            height = 1.3 + 0.22 * min(MOST_ROUTES, len(stage["routes"]))
            yield f"relay-{name}", height, partial(_relay, stage=stage)


def _recalls(document: Document) -> Iterator[tuple[str, Recall]]:
    """The last chain that each method followed."""
    names = _file_names(document)
    for journey in _first_seeds(document["journeys"]):
        chains = [chain for chain in journey["forgetting"]["chains"] if len(chain["clients"]) > 1]
        if chains:
            round, clients, matrix, transfer = chains[-1].values()
            yield (
                f"forgetting-{names[journey['method']]}",
                Recall(round, tuple(clients), tuple(map(tuple, matrix)), transfer, ()),
            )


def _first_seeds(journeys: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One run of each method."""
    return list({journey["method"]: journey for journey in reversed(journeys)}.values())[::-1]


def _curves(figure: Figure, document: Document, measure: str) -> None:
    """One panel for each cost."""
    panels = figure.subplots(2, 2, sharey=True).flatten()
    for axes, (cost, name) in zip(panels, COSTS.items(), strict=True):
        for number, method in enumerate(document["methods"]):
            course = method["course"]
            x, mean, std = (
                np.array(values, dtype=float)
                for values in (course[cost], *(course[measure][k] for k in ("mean", "std")))
            )
            axes.plot(x, mean, linewidth=1.4, label=method["name"], **line_look(number))
            if len(course["runs"]) > 1:
                axes.fill_between(x, mean - std, mean + std, color=line_look(number)["color"], alpha=0.18, linewidth=0)
        axes.set_xlabel(name)
        axes.set_xlim(left=0)
        axes.grid(axis="y", color="#E4E4E4", linewidth=0.6)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if measure == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            if document["reference"]:
                axes.axhline(document["reference"]["accuracy"], color=GREY, linestyle="--", linewidth=1)
    for axes in (panels[0], panels[2]):
        axes.set_ylabel(MEASURES[measure])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))


def _targets(figure: Figure, document: Document) -> None:
    """One panel for each cost, one bar for each method and target."""
    methods, targets = document["methods"], document["targets"]
    panels = figure.subplots(2, 2, sharey=True).flatten()
    for axes, (cost, name) in zip(panels, COSTS.items(), strict=True):
        for number, method in enumerate(methods):
            costs = method["standing"]["costs_to"]
            found = [each[cost] for each in costs]
            places = np.arange(len(targets)) + (number - (len(methods) - 1) / 2) * 0.8 / len(methods)
            colour = line_look(number)["color"]
            axes.barh(places, [value or 0 for value in found], 0.72 / len(methods), color=colour, label=method["name"])
            for place, value, reached in zip(places, found, costs, strict=True):
                if value is None:
                    why = " not reached" if reached["round"] is None else " not noted"
                    axes.text(0, place, why, color=GREY, fontsize=6, va="center")
        axes.set_yticks(range(len(targets)), [f"to {percent(target['accuracy'])}" for target in targets])
        axes.set_xlabel(name)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))


def _results(figure: Figure, methods: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
    """The level that every method came to, with its deviation over seeds; colours are those of the curves."""
    axes = figure.subplots()
    levels = [method["standing"]["accuracy_last"] for _, method in methods]
    names = [_with_losses(method) for _, method in methods]
    colours = [line_look(number)["color"] for number, _ in methods]
    deviations = [level["std"] or 0.0 for level in levels]
    axes.barh(
        names, [level["mean"] for level in levels], 0.6, xerr=deviations, color=colours, error_kw={"ecolor": GREY}
    )
    axes.set(xlabel="test accuracy, mean of the last evaluations", xlim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.invert_yaxis()


def _with_losses(method: Mapping[str, Any]) -> str:
    """The name of a method and, where seeds failed, how many came through."""
    lost = sum(run["status"] in FAILURES for run in method["runs"])
    seeds = len(method["runs"])
    return f"{method['name']} ({seeds - lost} of {seeds} seeds)" if lost else str(method["name"])


def _faults(figure: Figure, faults: Sequence[Mapping[str, Any]]) -> None:
    """How often each thing went wrong, split by what was done about it."""
    axes = figure.subplots()
    found: Counter[tuple[str, str]] = Counter()
    for fault in faults:
        found[fault["what"], fault["done"]] += fault["times"]
    whats, dones = (list(dict.fromkeys(kind[place] for kind, _ in found.most_common())) for place in (0, 1))
    left = np.zeros(len(whats))
    for number, done in enumerate(dones):
        values = np.array([found[what, done] for what in whats])
        axes.barh(whats, values, 0.6, left, color=line_look(number)["color"], label=done)
        left += values
    axes.set_xlabel("times")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=3)


def _communication(figure: Figure, methods: Sequence[Mapping[str, Any]]) -> None:
    """Transfers and bytes beside each other, split by kind."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, counted in zip(panels, ("transfers", "bytes"), strict=True):
        left = np.zeros(len(methods))
        for place, method in enumerate(methods):
            if method["traffic"][counted] is None:
                axes.text(0, place, " not noted", color=GREY, fontsize=7, va="center")
        for number, kind in enumerate(KINDS):
            values = np.array([(method["traffic"][counted] or {}).get(kind, 0.0) for method in methods])
            names = [method["name"] for method in methods]
            axes.barh(names, values, 0.6, left, color=LINE_COLOURS[number], label=kind.upper())
            left += values
        axes.set_xlabel(counted)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)


def _mixes(figure: Figure, rows: Sequence[Sequence[int]], noun: str, in_all: int) -> None:
    """The class mix of every client or group as one bar."""
    counts = np.array(rows, dtype=float)
    tops = (counts / np.maximum(1, counts.sum(axis=1, keepdims=True))).cumsum(axis=1)
    axes, colours = figure.subplots(), class_colours(counts.shape[1])
    for shade in reversed(range(counts.shape[1])):
        draw_bars(axes, tops[:, shade], colours(shade))
    if in_all > len(rows):
        axes.set_title(f"{len(rows):,} of {plural(in_all, noun)}")
    axes.set(ylabel="class mix", xlabel=noun, ylim=(0, 1), xlim=(-0.6, len(tops) - 0.4))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _relay(figure: Figure, stage: Mapping[str, Any]) -> None:
    """One line for each model, one stop for each turn, with the clients' numbers."""
    axes = figure.subplots()
    shown = stage["routes"][:MOST_ROUTES]
    longest = max((len(route) for route in shown), default=1)
    for number, route in enumerate(shown):
        axes.plot([0, len(route) + 0.6], [number, number], linewidth=1.6, **line_look(number), zorder=1)
        for turn, client in enumerate(route, start=1):
            if longest <= 24:
                box = {"boxstyle": "circle,pad=0.25", "fc": "white", "ec": line_look(number)["color"]}
                axes.text(turn, number, str(client), ha="center", va="center", fontsize=7, bbox=box, zorder=2)
    more = len(stage["routes"]) - len(shown) + stage.get("more_routes", 0)
    end = ("merged" if len(shown) > 1 else "home") if stage["merges"] else "waiting in slots"
    axes.set_title(
        f"round {stage['round']}: {plural(len(shown), 'model')}{f' of {len(shown) + more}' if more else ''}, then {end}"
    )
    axes.set(xlabel="turn", ylabel="model", xlim=(0, longest + 1), ylim=(len(shown) - 0.4, -0.6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _numbered(name: str, number: int) -> str:
    return f"{name}-{number + 1}" if number else name


def _file_names(document: Document) -> list[str]:
    """The names of all methods as files may have them; no two are alike, however a file system looks at them."""
    found: list[str] = []
    for method in document["methods"]:
        name, number = _file_name(method["name"]), 1
        free = name
        while free.lower() in map(str.lower, found):
            number += 1
            free = f"{name}-{number}"
        found.append(free)
    return found


def _file_name(name: str) -> str:
    """A name without characters that mean something to a file system."""
    return "".join(each if each.isalnum() or each in "+-_." else "_" for each in name).strip(".") or "_"
