"""The picture of the ablation: what each ingredient is worth, and scores by client updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedrelay.metrics.paired_differences import PairedDifference
from fedrelay.report.palette import LIGHT

Curve = Sequence[tuple[float, float]]
"""Client updates and the score there, in per cent."""


@dataclass(frozen=True)
class CellFacts:
    """What is drawn of a cell."""

    title: str
    differences: Mapping[str, PairedDifference]
    """What is left out → points above `relay`, which are mostly negative."""

    curves: Mapping[str, Sequence[Curve]]
    """Method → the curve of each seed."""

    target: float
    """90 % of centralised training, in per cent."""


def draw(cells: Sequence[CellFacts], path: Path) -> None:
    """One panel for the ingredients in all cells, and one of curves for each cell."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.differences))
    figure = Figure(figsize=(3.0 * max(3, len(cells)), 3.4 + 0.3 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subfigures(2, 1, height_ratios=(1 + 0.3 * len(names), 2.6))
    _ingredients(upper.subplots(), cells, names)
    for axes, cell in zip(lower.subplots(1, len(cells), squeeze=False)[0], cells, strict=True):
        _curves(axes, cell)
    figure.savefig(path, dpi=150)


def _ingredients(axes: Axes, cells: Sequence[CellFacts], names: Sequence[str]) -> None:
    for number, cell in enumerate(cells):
        colour = LIGHT[f"method-{number % 7}"]
        for name, found in cell.differences.items():
            line = names.index(name) + 0.16 * (number - (len(cells) - 1) / 2)
            axes.plot(found.interval or (found.mean, found.mean), (line, line), color=colour, linewidth=1.2)
            label = cell.title if name == next(iter(cell.differences)) else None
            axes.plot(found.mean, line, "o", color=colour, markersize=4, label=label)
    axes.axvline(0, color=LIGHT["ink"], linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title("relay without it, points above or below relay, with 95 % intervals", loc="left", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _clean(axes)


def _curves(axes: Axes, cell: CellFacts) -> None:
    for number, (name, seeds) in enumerate(cell.curves.items()):
        updates = np.mean([[spent for spent, _ in curve] for curve in seeds], axis=0)
        scores = np.mean([[score for _, score in curve] for curve in seeds], axis=0)
        axes.plot(updates, scores, color=LIGHT[f"method-{number % 7}"], label=name, linewidth=1.4)
    axes.axhline(cell.target, color=LIGHT["soft"], linewidth=0.8, linestyle=":", label="90 % of centralised")
    axes.set_title(cell.title, loc="left", fontsize=9)
    axes.set_xlabel("client updates", fontsize=8)
    axes.legend(fontsize=6.5, frameon=False, loc="lower right")
    _clean(axes)


def _clean(axes: Axes) -> None:
    axes.grid(color=LIGHT["faint"])
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
