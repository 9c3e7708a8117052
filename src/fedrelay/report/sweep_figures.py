"""The figures of a sweep: lines over one setting, heat maps over two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrelay.experiment.sweep_cells import axis_names
from fedrelay.report.figure_specs import Figure, shown_metrics
from fedrelay.report.format import difference, score
from fedrelay.report.palette import line_style
from fedrelay.report.sweep_summary import sweep_rows
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.sweep_result import SweepResult

LOG_RATIO = 10
"""From this ratio of the largest value to the smallest, an axis is logarithmic."""


def sweep_figures(result: SweepResult) -> dict[str, Figure]:
    """All figures of a sweep that have numbers, by name: scores, and differences to the baseline."""
    rows = sweep_rows(result)
    if not any(row["mean"] is not None for row in rows):
        return {}
    drawn = _lines(result, rows) if len(result.comparison.sweep) == 1 else _heat_maps(result, rows)
    return {name: figure for name, figure in drawn.items() if figure["marks"]}


def swept_axis(name: str, values: Sequence[Any]) -> tuple[list[float], dict[str, Any]]:
    """Places of the values, and the axis: to scale, logarithmic, or at equal distances.

    Words have equal distances, and so have numbers that span decades from 0, which a logarithm does not have.

    >>> swept_axis("alpha", (0, 0.1, 1, 10))[0]
    [0.0, 1.0, 2.0, 3.0]
    """
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    positive = [number for number in numbers if number > 0]
    decades = bool(positive) and max(positive) >= LOG_RATIO * min(positive)
    to_scale = len(numbers) == len(values) and (not decades or len(positive) == len(numbers))
    places = numbers if to_scale else [float(place) for place in range(len(values))]
    ticks = [
        [place, f"{value:g}" if isinstance(value, float) else str(value)]
        for place, value in zip(places, values, strict=True)
    ]
    axis = {"label": name, "format": "number", "ticks": ticks}
    return places, {**axis, "scale": "log"} if to_scale and decades else axis


def _lines(result: SweepResult, rows: Sequence[Row]) -> dict[str, Figure]:
    [values], [name] = result.comparison.sweep.values(), axis_names(result.comparison.sweep)
    places, axis = swept_axis(name, values)
    label, form = shown_metrics(result.task)[result.task.headline]
    baseline, several = result.outcomes[0].baseline.name, len(result.comparison.seeds) > 1
    scores, differences = [], []
    for number, entry in enumerate(result.comparison.methods):
        own = [row for row in rows if row["method"] == entry.name]
        common = {"kind": "line", "name": entry.name, "by_method": True, "dots": True, **line_style("method", number)}
        scores.append({**common, **_points(places, [row["mean"] for row in own], [row["margin"] for row in own])})
        if entry.name != baseline:
            means = [row["difference_mean"] for row in own]
            margins = [
                None if row["difference_high"] is None else row["difference_high"] - row["difference_mean"]
                for row in own
            ]
            differences.append({**common, **_points(places, means, margins)})
    bands = "Bands are 95 % confidence intervals of the mean over seeds." if several else "One seed, so no bands."
    change = "points" if form == "percent" else "change"
    better = "above" if result.task.headline_info.higher_is_better else "below"
    rule = {"kind": "rule", "name": baseline, "y": 0, "colour": "soft", "dash": 1}
    unit = ", points" if change == "points" else ""
    return {
        "sweep": {
            "title": f"{label} over {name}",
            "x": axis,
            "y": {"label": label, "format": form},
            "marks": [mark for mark in scores if mark["x"]],
            "note": bands,
        },
        "sweep-differences": {
            "title": f"{label} minus {baseline} over {name}",
            "x": axis,
            "y": {"label": f"Difference{unit}", "format": change},
            "marks": [*drawn, rule] if (drawn := [mark for mark in differences if mark["x"]]) else [],
            "note": f"Seed by seed; {better} zero is better. {bands}",
        },
    }


def _points(x: Sequence[float], y: Sequence[float | None], error: Sequence[float | None]) -> dict[str, Any]:
    known = [place for place, value in enumerate(y) if value is not None]
    points = {"x": [x[place] for place in known], "y": [y[place] for place in known]}
    margins = [error[place] for place in known]
    return points if all(margin is None for margin in margins) else {**points, "error": margins}


def _heat_maps(result: SweepResult, rows: Sequence[Row]) -> dict[str, Figure]:
    info, baseline = result.task.headline_info, result.outcomes[0].baseline.name
    _, form = shown_metrics(result.task)[result.task.headline]
    means = [row["mean"] for row in rows if row["mean"] is not None]
    gaps = [abs(row["difference_mean"]) for row in rows if row["difference_mean"] is not None]
    figures: dict[str, Figure] = {}
    for entry in result.comparison.methods:
        own = [row for row in rows if row["method"] == entry.name]
        mark = {
            **_matrix(
                result, [row["mean"] for row in own], [score(info, row["mean"]).removesuffix(" %") for row in own]
            ),
            "format": form,
            "limits": [min(means), max(means) if max(means) > min(means) else min(means) + 1e-9],
        }
        unit = " in percent" if info.percent else ""
        figures[f"sweep-{entry.name}"] = {
            "title": f"{entry.name}: {result.task.label}{unit}",
            "marks": [mark],
            "note": "Means over seeds. All methods have the same shades.",
        }
    for entry in result.comparison.methods:
        own = [row for row in rows if row["method"] == entry.name]
        if entry.name == baseline or all(row["difference_mean"] is None for row in own):
            continue
        most, shown = max(gaps) or 1e-9, [difference(info, row["difference_mean"]) for row in own]
        texts = [text if row["more_than_chance"] else f"({text})" for text, row in zip(shown, own, strict=True)]
        mark = {
            **_matrix(result, [row["difference_mean"] for row in own], texts),
            "format": "points" if form == "percent" else "change",
            "limits": [-most, most],
            "diverging": "up" if info.higher_is_better else "down",
        }
        unit = " in points" if info.percent else ""
        figures[f"sweep-{entry.name}-minus-{baseline}"] = {
            "title": f"{entry.name} minus {baseline}: {result.task.label}{unit}",
            "marks": [mark],
            "note": f"Blue: {entry.name} is better. In brackets: may be chance, by paired t-tests over seeds with "
            "Holm's correction in each cell.",
        }
    return figures


def _matrix(result: SweepResult, values: Sequence[float | None], texts: Sequence[str]) -> dict[str, Any]:
    (row_name, column_name), (rows, columns) = axis_names(result.comparison.sweep), result.comparison.sweep.values()
    return {
        "kind": "cells",
        "rows": list(map(str, rows)),
        "columns": list(map(str, columns)),
        "row_title": row_name,
        "column_title": column_name,
        "values": _rows(result, values),
        "texts": _rows(result, texts),
    }


def _rows(result: SweepResult, items: Sequence[Any]) -> list[list[Any]]:
    """Items of all cells as rows; the second setting varies fastest."""
    across = len(list(result.comparison.sweep.values())[1])
    return [list(items[start : start + across]) for start in range(0, len(items), across)]
