"""A claim as a figure: learning curves of its comparisons, bars for its groups."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from PIL import Image

from fedrelay.files import write_atomically
from fedrelay.report.drawing import render
from fedrelay.report.figure_specs import Figure, score_curves
from fedrelay.report.palette import line_style
from fedrelay_reproduce.experiments import ComparisonRuns, ExperimentRuns, GroupComparison
from fedrelay_reproduce.scaled_claim import ScaledClaim

DPI = 100
COLOURS = 256
MOST_COLUMNS = 3
FEWEST_LINES = 2
"""If a criterion uses fewer methods of a comparison, all of them are drawn."""

MOST_LINES = 12
"""What was added after a verdict is drawn as long as all panels together have no more methods: then lines differ."""


def draw_claim(scaled: ScaledClaim, path: Path) -> bool:
    """Draw a claim; False if there is nothing to draw."""
    figures = panels_of(scaled)
    if not figures:
        return False
    columns = min(MOST_COLUMNS, len(figures))
    write_atomically(path, _fewer_colours(render(figures, "png", columns=columns, dpi=DPI, width=1.0 + 2.9 * columns)))
    return True


def _fewer_colours(picture: bytes) -> bytes:
    content = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as whole:
        whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    return content.getvalue()


def panels_of(scaled: ScaledClaim) -> list[Figure]:
    """One for each comparison, one for each measure of groups; not all of what was added after the verdict."""
    panels: list[Figure] = []
    methods: dict[str, int] = {}  # a method has one colour in all panels
    used = scaled.used()
    finished = scaled.finished
    for key, experiment in finished.items():
        title = key.replace("_", " ") if len(finished) > 1 else ""
        if isinstance(experiment, ComparisonRuns):
            names = [name for name in experiment.names if name in used[key]]
            names = names if len(names) >= FEWEST_LINES else list(experiment.names)
            if key in scaled.claim.supplements and len(methods.keys() | set(names)) > MOST_LINES:
                continue
            if any(experiment.measured(name, scaled.seeds[0]).curve for name in experiment.names):
                for name in names:
                    methods.setdefault(name, len(methods))
                panels.append(_curves(title, experiment, names, methods))
        elif isinstance(experiment, GroupComparison):
            measures = dict.fromkeys(measure for of in used[key].values() for measure in of)
            panels += [_groups(title, experiment, measure) for measure in measures]
    return panels


def _curves(title: str, experiment: ComparisonRuns, names: Sequence[str], methods: Mapping[str, int]) -> Figure:
    """Accuracy over rounds; if seeds have curves of different lengths (a run diverged), the shortest counts."""
    histories = {}
    for name in names:
        curves = [experiment.measured(name, seed).curve for seed in experiment.seeds]
        shortest = min(map(len, curves))
        if shortest:
            histories[name] = [[dict(row) for row in curve[:shortest]] for curve in curves]
    figure = score_curves(histories)
    for mark in figure["marks"]:
        mark |= line_style("method", methods[mark["name"]])
    figure["y"]["limits"] = [0, 1]  # the same axis makes panels comparable
    return {**figure, "title": title}


def _groups(title: str, experiment: ExperimentRuns, measure: str) -> Figure:
    """One point for each grouping, with the deviation over seeds."""
    rows = []
    for name in experiment.names:
        values = [experiment.measured(name, seed).values.get(measure) for seed in experiment.seeds]
        known = [value for value in values if value is not None]
        if known:
            error = stdev(known) if len(known) > 1 else None
            rows.append({"name": name.replace("_", " "), "colour": "method-0", "value": fmean(known), "error": error})
    mark = {"kind": "points", "rows": rows, "format": "number"}
    return {"title": title, "x": {"label": measure.replace("_", " "), "format": "number"}, "marks": [mark]}
