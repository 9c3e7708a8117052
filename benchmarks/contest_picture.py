"""The picture of the contest: how far ahead we are in every cell, and where all finalists are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contest_page import OURS, Cells, lead, mean
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedrelay.report.palette import LIGHT

SHOWN_BUDGETS = {"updates": ("o", LIGHT["method-0"], -0.14), "bytes": ("s", LIGHT["method-3"], 0.14)}
"""Budget → its marker, its colour, and how far below the middle of the cell's row it is."""

NAMED = {"fedavg": LIGHT["method-1"], "fedseq": LIGHT["method-2"]}
FURTHEST = 12.0
"""Entrants that are more points away are drawn at the edge."""


def draw(cells: Cells, path: Path) -> None:
    """Write the picture; a line for each cell, those for design first."""
    ordered = sorted(cells, key=lambda cell: cell["frozen"])
    figure = Figure(figsize=(11, 1.6 + 0.36 * len(ordered)), layout="constrained")
    FigureCanvasAgg(figure)
    leads, finalists = figure.subplots(1, 2, sharey=True)
    for line, cell in enumerate(ordered):
        _lead(leads, line, cell)
        _finalists(finalists, line, cell)
    leads.set_yticks(range(len(ordered)), [cell["title"] for cell in ordered], fontsize=8)
    leads.set_ylim(len(ordered) - 0.5, -0.5)
    first_frozen = sum(not cell["frozen"] for cell in ordered)
    for axes, words in (
        (leads, "relay's lead over the best rival, points, with 95 % intervals"),
        (finalists, "all finalists at equal client updates, points above or below relay"),
    ):
        axes.axvline(0, color=LIGHT["ink"], linewidth=0.8)
        if 0 < first_frozen < len(ordered):
            axes.axhline(first_frozen - 0.5, color=LIGHT["soft"], linewidth=0.8, linestyle=":")
        axes.set_title(words, loc="left", fontsize=9)
        axes.grid(axis="x", color=LIGHT["faint"])
        axes.set_axisbelow(True)
        axes.legend(*_once(axes), fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.07), ncols=4)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
    if 0 < first_frozen < len(ordered):
        for line, words in ((first_frozen - 0.58, "for design ↑"), (first_frozen - 0.35, "frozen ↓")):
            leads.text(1.0, line, words, transform=leads.get_yaxis_transform(), ha="right", fontsize=7, va="center")
    figure.savefig(path, dpi=150)


def _lead(axes: Axes, line: int, cell: Mapping[str, Any]) -> None:
    for budget, (marker, colour, below) in SHOWN_BUDGETS.items():
        ahead, place = lead(cell, budget), line + below
        axes.plot(ahead.interval or (ahead.mean, ahead.mean), (place, place), color=colour, linewidth=1.2)
        axes.plot(ahead.mean, place, marker, color=colour, markersize=4, label=f"equal {budget}", linestyle="none")


def _finalists(axes: Axes, line: int, cell: Mapping[str, Any]) -> None:
    scores = cell["scores"]["updates"]
    for name, of_entrant in scores.items():
        if name == OURS:
            continue
        away = max(-FURTHEST, mean(of_entrant) - mean(scores[OURS]))
        ours = name in cell["ours"]
        label = name if name in NAMED else "relay with other groups" if ours else "other rivals"
        colour = NAMED.get(name, LIGHT["method-0"] if ours else LIGHT["soft"])
        marker = "<" if away == -FURTHEST else "D" if ours else "o"
        axes.plot(away, line, marker, color=colour, markersize=4, alpha=0.8, label=label, linestyle="none")


def _once(axes: Axes) -> tuple[list[Any], list[str]]:
    """Handles and labels of a legend in which no label is repeated."""
    handles, labels = axes.get_legend_handles_labels()
    labelled = dict(zip(labels, handles, strict=True))
    return list(labelled.values()), list(labelled)
