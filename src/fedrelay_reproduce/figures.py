"""A claim as a figure: learning curves of its comparisons, bars for its groups."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedrelay.files import write_atomically
from fedrelay.report.plots import GREY, LINE_COLOURS, STYLE, Line, accuracy_over, drawn
from fedrelay_reproduce.experiments import ComparisonRuns, ExperimentRuns, GroupComparison
from fedrelay_reproduce.scaled_claim import ScaledClaim

DPI = 100
COLOURS = 64
MOST_COLUMNS = 3
FEWEST_LINES = 2
"""If a criterion uses fewer methods of a comparison, all of them are drawn."""


def draw_claim(scaled: ScaledClaim, path: Path) -> bool:
    """Draw a claim; False if there is nothing to draw."""
    panels = _panels(scaled)
    if not panels:
        return False
    columns = min(MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(1.0 + 2.9 * columns, 2.9 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, (title, experiment, names, measure) in zip(grid.flat, panels, strict=False):
            if isinstance(experiment, ComparisonRuns):
                _draw_curves(axes, experiment, names)
            else:
                _draw_bars(axes, experiment, measure)
            axes.set_title(title, color=GREY)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        write_atomically(path, _fewer_colours(drawn(figure, "png", DPI)))
    return True


def _fewer_colours(picture: bytes) -> bytes:
    content = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as whole:
        whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    return content.getvalue()


def _panels(scaled: ScaledClaim) -> list[tuple[str, ExperimentRuns, Sequence[str], str]]:
    """Title, experiment, methods and measure: one for each comparison, one for each measure of groups."""
    panels: list[tuple[str, ExperimentRuns, Sequence[str], str]] = []
    used = scaled.used()
    for name, experiment in scaled.experiments.items():
        title = name.replace("_", " ") if len(scaled.experiments) > 1 else ""
        names = [each for each in experiment.names if each in used[name]]
        if isinstance(experiment, ComparisonRuns):
            if any(experiment.measured(each, scaled.seeds[0]).curve for each in experiment.names):
                panels.append((title, experiment, names if len(names) >= FEWEST_LINES else experiment.names, ""))
        elif isinstance(experiment, GroupComparison):
            measures = dict.fromkeys(measure for of in used[name].values() for measure in of)
            panels += [(title, experiment, experiment.names, measure) for measure in measures]
    return panels


def _draw_curves(axes: Axes, experiment: ComparisonRuns, names: Sequence[str]) -> None:
    """Accuracy over rounds; if seeds have curves of different lengths (a run diverged), the shortest counts."""
    lines = []
    for name in names:
        curves = [experiment.measured(name, seed).curve for seed in experiment.seeds]
        shortest = min(map(len, curves))
        if shortest:
            lines.append(Line(name, [[dict(row) for row in curve[:shortest]] for curve in curves]))
    accuracy_over(axes, lines, "round", 1)
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))  # the same axis makes panels comparable
    axes.legend(fontsize=7, handlelength=2.2, loc="best")


def _draw_bars(axes: Axes, experiment: ExperimentRuns, measure: str) -> None:
    """One bar for each grouping, with the deviation over seeds."""
    bars = []
    for name in experiment.names:
        values = [experiment.measured(name, seed).values.get(measure) for seed in experiment.seeds]
        known = [value for value in values if value is not None]
        if known:
            bars.append((name.replace("_", " "), fmean(known), stdev(known) if len(known) > 1 else 0.0))
    names, means, deviations = zip(*bars, strict=True) if bars else ((), (), ())
    axes.barh(names, means, xerr=deviations, color=LINE_COLOURS[0], height=0.7, error_kw={"ecolor": GREY})
    axes.invert_yaxis()
    axes.set_xlabel(measure.replace("_", " "))
