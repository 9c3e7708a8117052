"""Draws figure values (see `figure_specs.py`) as PNG, SVG and PDF with matplotlib, without display or global state."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from fedrelay.report.figure_files import FORMATS, STYLE, WIDTH
from fedrelay.report.figure_specs import Figure, legend, resolve
from fedrelay.report.format import PERCENT, count, factor, moment, percent, size
from fedrelay.report.palette import DASHES, LIGHT
from fedrelay.tasks.metric_info import LOSS

DPI = 200
MOST_ROWS = 60
MOST_NUMBERED = 30
"""Up to this many columns or cells are labelled."""

_NUMBERS: dict[str, Callable[[float], str]] = {
    "count": count,
    "percent": percent,
    "bytes": size,
    "seconds": moment,
    "number": lambda value: f"{value:.3g}",
    "points": PERCENT.difference,
    "change": LOSS.difference,
}


def render(
    figures: Sequence[Figure | None],
    kind: str,
    document: Mapping[str, Any] | None = None,
    columns: int = 1,
    dpi: int = DPI,
    width: float = WIDTH,
    style: Mapping[Any, Any] = STYLE,
) -> bytes:
    """Return figures as the bytes of one file; equal figures have equal bytes."""
    content = io.BytesIO()
    with rc_context(dict(style)):
        canvas = compose(figures, document, columns, width, style)
        FigureCanvasAgg(canvas)
        canvas.savefig(content, format=kind, dpi=dpi, metadata=FORMATS[kind])
    return content.getvalue()


def compose(
    figures: Sequence[Figure | None],
    document: Mapping[str, Any] | None = None,
    columns: int = 1,
    width: float = WIDTH,
    style: Mapping[Any, Any] = STYLE,
) -> Canvas:
    """Return figures as the panels of one matplotlib figure with one legend, for callers that want to change it."""
    with rc_context(dict(style)):
        return _composed(figures, document, columns, width)


def _composed(
    figures: Sequence[Figure | None], document: Mapping[str, Any] | None, columns: int, width: float
) -> Canvas:
    resolved = [None if figure is None else _resolved(figure, document or {}) for figure in figures]
    rows = [resolved[start : start + columns] for start in range(0, len(resolved), columns)]
    heights = [max(_height(each, columns) for each in row if each is not None) for row in rows]
    keys = legend(each for each in resolved if each is not None)
    letters_per_inch = 115 / FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    longest = max((len(key["name"]) for key in keys), default=1)
    across = max(1, min(5, int(width * letters_per_inch / (6 + longest))))
    key_height = 0.2 * -(-len(keys) // across) if keys else 0
    canvas = Canvas(figsize=(width, sum(heights) + key_height), layout="constrained")
    grid = canvas.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for axes, figure in zip_longest(grid.flat, resolved):
        if figure is None:
            axes.set_axis_off()
            continue
        axes.set_title(figure["title"], wrap=True)
        axes.set(xlabel=figure.get("x", {}).get("label", ""), ylabel=figure.get("y", {}).get("label", ""))
        for mark in figure["marks"]:
            _MARKS[mark["kind"]](axes, mark, figure)
    if keys:
        handles = [_handle(key) for key in keys]
        canvas.legend(handles=handles, loc="outside lower center", ncols=min(across, len(keys)), handlelength=2.4)
    return canvas


def _resolved(figure: Figure, document: Mapping[str, Any]) -> Figure:
    marks = [{key: resolve(value, document) for key, value in mark.items()} for mark in figure["marks"]]
    return {**figure, "marks": marks}


def _height(figure: Figure, columns: int) -> float:
    if not figure["marks"]:
        return 0.5
    mark = figure["marks"][0]
    if mark["kind"] == "bars":
        return 0.5 + 0.19 * sum(len(group["rows"]) + 1.4 for group in mark["groups"])
    if mark["kind"] in ("points", "stack"):
        return 0.8 + 0.28 * len(mark["rows"])
    if mark["kind"] == "sequences":
        return 0.9 + 0.24 * min(MOST_ROWS, len(mark["rows"]))
    if mark["kind"] == "cells" and "texts" in mark:
        return 0.7 + 0.34 * len(mark["rows"])
    if mark["kind"] == "cells":
        return min(4.6, WIDTH / columns)
    return (2.6 if columns > 1 or mark["kind"] == "mix" else 3.4) * float(figure.get("height", 1))


def _colour(role: str) -> str:
    return LIGHT.get(role, role)


def _line(mark: Mapping[str, Any]) -> dict[str, Any]:
    pattern = DASHES[mark.get("dash", 0)]
    return {
        "color": _colour(mark["colour"]),
        "linestyle": (0, tuple(0.6 * each for each in pattern)) if pattern else "-",
    }


def _handle(key: Mapping[str, Any]) -> Any:
    if key.get("line"):
        return Line2D([], [], linewidth=1.6, label=key["name"], **_line(key))
    return Patch(color=_colour(key["colour"]), label=key["name"])


def _draw_line(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    if mark.get("layer"):  # optional layers are for the page
        return
    x, y = np.array(mark["x"], dtype=float), np.array(mark["y"], dtype=float)
    marker = "o" if len(x) == 1 or mark.get("dots") else ""
    axes.plot(x, y, linewidth=1.4, marker=marker, markersize=4, zorder=3, label=mark["name"], **_line(mark))
    if "error" in mark:
        error = np.array(mark["error"], dtype=float)
        low, high = y - error, y + error
        if figure["y"]["format"] == "percent":
            low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
        axes.fill_between(x, low, high, color=_colour(mark["colour"]), alpha=0.18, linewidth=0, zorder=2)
    _style_axis(axes, "x", figure["x"])
    _style_axis(axes, "y", figure["y"])
    axes.grid(axis="y", color=LIGHT["faint"], linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_rule(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    axes.axhline(mark["y"], linewidth=1.1, zorder=1, label=mark["name"], **_line(mark))


def _style_axis(axes: Axes, side: str, axis: Mapping[str, Any]) -> None:
    scale = axes.xaxis if side == "x" else axes.yaxis
    form = axis.get("format", "number")
    if axis.get("scale") == "log":
        axes.set(**{f"{side}scale": "log"})
        scale.set_major_locator(LogLocator(10, (1, 2, 5)))
        scale.set_minor_formatter(NullFormatter())
    else:
        scale.set_major_locator(MaxNLocator(5, integer=form == "count"))
    if "ticks" in axis:
        scale.set_major_locator(FixedLocator([place for place, _ in axis["ticks"]]))
        scale.set_minor_locator(NullLocator())
    if "limits" in axis:
        axes.set(**{f"{side}lim": axis["limits"]})
    if "ticks" in axis:
        scale.set_major_formatter(FixedFormatter([text for _, text in axis["ticks"]]))
    else:
        scale.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, form)))


def _tick(value: float, form: str) -> str:
    if form == "percent":
        return f"{100 * value:.3g} %"
    if form in ("points", "change"):
        return f"{(100 if form == 'points' else 1) * round(value, 9):+.3g}" if round(value, 9) else "0"
    return _NUMBERS[form](round(value, 9)).replace(".0 ", " ")


def _draw_bars(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    """Rows below the title of their group; the value and its factor are at the end of each bar."""
    number = _NUMBERS[mark["format"]]
    place, longest = 0.0, max((row["value"] or 0 for group in mark["groups"] for row in group["rows"]), default=0) or 1
    labels = []
    for group in mark["groups"]:
        base = next((row["value"] for row in group["rows"] if row["name"] == mark.get("ratio_to")), None)
        axes.text(0, place, group["title"], va="center", fontsize=8, fontweight="bold")
        for row in group["rows"]:
            place += 1
            labels.append((place, row["name"]))
            if row["value"] is None:
                axes.text(0, place, f" {row['missing']}", color=LIGHT["soft"], fontsize=7, va="center")
                continue
            axes.barh(place, row["value"], 0.7, color=_colour(row["colour"]))
            text = axes.annotate(
                f" {number(row['value'])}", (row["value"], place), va="center", fontsize=7, color=LIGHT["ink"]
            )
            if base and row["value"] and row["name"] != mark.get("ratio_to"):
                ratio = base / row["value"]
                colour = LIGHT["good"] if ratio >= 1 else LIGHT["warn"]
                axes.annotate(f"  {factor(ratio)}", (1, 0.5), xycoords=text, va="center", fontsize=7, color=colour)
        place += 1.6
    axes.set(xlim=(0, 1.25 * longest), ylim=(place - 1, -0.8), xticks=[])
    axes.set_yticks([place for place, _ in labels], [name for _, name in labels], fontsize=7)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _draw_points(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    for place, row in enumerate(mark["rows"]):
        colour = _colour(row["colour"])
        error = row["error"]
        if row.get("ends"):
            low, high = row["ends"]
            error = [[max(0.0, row["value"] - low)], [max(0.0, high - row["value"])]]
        axes.errorbar(row["value"], place, xerr=error, fmt="o", color=colour, capsize=3, markersize=5)
        axes.annotate(
            _NUMBERS[mark["format"]](row["value"]), (row["value"], place), (0, 5), ha="center", fontsize=7,
            textcoords="offset points",
        )  # fmt: skip
    names = [row["name"] + (f" ({row['remark']})" if row.get("remark") else "") for row in mark["rows"]]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.margins(x=0.08)
    if figure["x"].get("zero"):
        axes.axvline(0, linewidth=1.1, color=LIGHT["soft"], zorder=1)
    if "bounds" in figure["x"]:
        (left, right), (lowest, highest) = axes.get_xlim(), figure["x"]["bounds"]
        axes.set_xlim(max(left, lowest), min(right, highest))
    _style_axis(axes, "x", figure["x"])
    axes.grid(axis="x", color=LIGHT["faint"], linewidth=0.6)


def _draw_stack(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    values = np.array(mark["values"], dtype=float)
    left = np.zeros(len(values))
    for place, part in enumerate(mark["parts"]):
        axes.barh(
            mark["rows"], values[:, place], 0.6, left, color=_colour(part["colour"]), edgecolor="white", linewidth=0.5
        )
        left += values[:, place]
    for place, total in enumerate(left):
        axes.text(total, place, f" {_NUMBERS[mark['format']](round(total, 1))}", va="center", fontsize=7)
    axes.set(xticks=[], xlim=(0, 1.15 * (left.max() or 1)))
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()


def _draw_mix(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    colours = [part["colour"] for part in mark["parts"]]
    starts = [place for place, colour in enumerate(colours) if not place or colour != colours[place - 1]]
    counts = np.add.reduceat(np.array(mark["counts"], dtype=float)[mark["rows"]], starts, axis=1)
    if mark.get("share"):
        counts = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        axes.set_ylim(0, 1)
    tops = counts.cumsum(axis=1)
    for part in reversed(range(tops.shape[1])):  # each over the last: columns side by side would show seams
        colour = _colour(colours[starts[part]])
        if len(tops) <= MOST_NUMBERED:
            axes.bar(np.arange(len(tops)), tops[:, part], 0.86, color=colour, linewidth=0)
        else:
            axes.stairs(tops[:, part], np.arange(len(tops) + 1) - 0.5, fill=True, color=colour, linewidth=0)
    names = mark.get("names", mark["rows"])
    labelled = len(tops) <= MOST_NUMBERED and names
    axes.set_xticks(range(len(tops)) if labelled else [], list(map(str, names)) if labelled else [])
    axes.set_xlim(-0.6, len(tops) - 0.4)
    _style_axis(axes, "y", figure["y"])


def _draw_cells(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    rows, across = mark["values"], max(map(len, mark["values"]))
    known = np.full((len(rows), across), np.nan)
    for place, row in enumerate(rows):
        known[place, : len(row)] = row
    ends = [LIGHT["warn"], LIGHT["card"], LIGHT["cell"]] if "diverging" in mark else [LIGHT["card"], LIGHT["cell"]]
    shades = LinearSegmentedColormap.from_list("cell", ends[::-1] if mark.get("diverging") == "down" else ends)
    norm = PowerNorm(mark.get("gamma", 1), *mark["limits"])
    picture = axes.imshow(known, cmap=shades, norm=norm, interpolation="nearest")
    axes.set_aspect("auto" if "texts" in mark else "equal")  # texts are wider than high
    for place, texts in enumerate(mark.get("texts", ())):
        for column, text in enumerate(texts):
            number = known[place, column]
            dark = not np.isnan(number) and sum(shades(norm(number))[:3]) < 1.6
            axes.text(column, place, text, ha="center", va="center", color="white" if dark else LIGHT["ink"])
    axes.set(xlabel=mark.get("column_title", ""), ylabel=mark.get("row_title", ""))
    numbered = len(rows) <= MOST_NUMBERED and mark["rows"]
    axes.set_xticks(range(across) if numbered else [], mark["columns"] if numbered else [], rotation=90 * (across > 10))
    axes.set_yticks(range(len(rows)) if numbered else [], mark["rows"] if numbered else [])
    bar = axes.figure.colorbar(picture, ax=axes, format=FuncFormatter(lambda value, _: _tick(value, mark["format"])))
    bar.outline.set_visible(False)


def _draw_sequences(axes: Axes, mark: Mapping[str, Any], figure: Figure) -> None:
    shown, names = mark["rows"][:MOST_ROWS], mark.get("names", ())
    absent = {(flag["row"], flag["place"]) for flag in mark.get("flags", ()) if flag.get("absent")}
    longest = max(map(len, shown), default=1)
    for place, row in enumerate(shown):
        colour = _colour(f"route-{place % 7}")
        axes.plot([0.4, len(row) + 0.6], [place, place], linewidth=1.6, color=colour, zorder=1)
        for side, x in (("before", 0.2), ("after", len(row) + 0.8)):
            text = mark.get(side)
            text = text[place] if isinstance(text, list) else text
            align = "right" if side == "before" else "left"
            axes.text(x, place, text or "", fontsize=7, color=LIGHT["soft"], ha=align, va="center")
        for hop, item in enumerate(row, start=1):
            away = (place, hop - 1) in absent
            if longest <= 24:
                box = {"boxstyle": "round,pad=0.3" if names else "circle,pad=0.25", "fc": "white"}
                box |= {"ec": LIGHT["warn"], "ls": ":"} if away else {"ec": colour}
                axes.text(
                    hop, place, names[item] if names else str(item), ha="center", va="center", fontsize=7, bbox=box,
                    zorder=2, color=LIGHT["soft"] if away else LIGHT["ink"],
                )  # fmt: skip
            else:
                axes.plot(hop, place, "o", color=colour, markersize=2)
    for flag in mark.get("flags", ()):
        if flag["row"] < len(shown):
            axes.annotate("!", (flag["place"] + 1, flag["row"]), (6, 4), textcoords="offset points",
                          color=LIGHT["warn"], fontweight="bold")  # fmt: skip
    more = len(mark["rows"]) - len(shown)
    if more:
        axes.set_title(f"{figure['title']} ({len(shown)} of {len(mark['rows'])} drawn)", wrap=True)
    axes.set(xlim=(-0.8, longest + 1.8), ylim=(len(shown) - 0.4, -0.6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xticks([tick for tick in axes.get_xticks() if 1 <= tick <= longest])
    axes.set_yticks(range(len(shown)), [str(place + 1) for place in range(len(shown))], fontsize=7)


_MARKS: dict[str, Callable[[Axes, Mapping[str, Any], Figure], None]] = {
    "line": _draw_line,
    "rule": _draw_rule,
    "bars": _draw_bars,
    "points": _draw_points,
    "stack": _draw_stack,
    "mix": _draw_mix,
    "cells": _draw_cells,
    "sequences": _draw_sequences,
}
