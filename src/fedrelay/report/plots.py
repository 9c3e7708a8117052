"""Figures for papers: learning curves of a comparison, the class mix of every client, and what a chain forgets.

Drawn with the Agg backend, without a display and without global state. Colours are safe for colour-blind eyes:
lines near those of Okabe and Ito, up to ten classes near Tol's muted scheme, set apart further; viridis for more.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fedrelay.errors import SpecError
from fedrelay.files import write_atomically
from fedrelay.report.holdings import HoldingsReport, joined_classes
from fedrelay.report.recall import Recall
from fedrelay.runtime.comparison import ComparisonResult
from fedrelay.runtime.result import Result, Row

FORMATS: dict[str, dict[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""What a figure can be written as, and the metadata left out so that equal figures have equal bytes."""

DPI = 200

LINE_COLOURS = ("#1F5597", "#B34200", "#008557", "#A8739F", "#D67E00", "#1F9AE8", "#1C2024")
LINE_STYLES = ("-", (0, (6, 2)), (0, (2, 1.5)), "-.")
CLASS_COLOURS = (
    "#19187E", "#68CCEE", "#53A194", "#087432", "#928825", "#D2C864", "#C35C6B", "#8B2158", "#9C4293", "#B6C7CF",
)  # fmt: skip
GREY = "#808080"
MOST_NUMBERED = 30
"""Up to so many clients stand in their own order, with their numbers; more are ordered by their main class."""

MOST_BARS = 1000

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#404040",
    "axes.linewidth": 0.8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "xtick.color": "#404040",
    "ytick.color": "#404040",
    "legend.frameon": False,
    "svg.hashsalt": "fedrelay",
    "text.parse_math": False,  # a label with two $ is no formula
}


class Line(NamedTuple):
    """What is drawn of one method: the rows of its history, seed by seed."""

    name: str
    histories: Sequence[Sequence[Row]]


def draw_curves(outcome: ComparisonResult, path: Path) -> None:
    """Accuracy over rounds and, beside it, over traffic; mean and deviation over seeds."""
    shown = [each for each in outcome.contenders if each.results and each.method != "centralized"]
    shown = shown or [each for each in outcome.contenders if each.results]
    if not shown:
        return
    seeds = max(len(contender.results) for contender in shown)
    traffic = max(result.bytes for contender in shown for result in contender.results)
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        lines = [Line(each.name, [result.history for result in each.results]) for each in shown]
        accuracy_over(left, lines, "round", 1)
        left.set(xlabel="round", ylabel="test accuracy")
        if traffic:
            unit, name = (1e9, "GB") if traffic >= 1e10 else (1e6, "MB")
            accuracy_over(right, lines, "bytes", unit)
            right.set(xlabel=f"traffic, {name}")
        else:
            accuracy_over(right, lines, "client_updates", 1)
            right.set(xlabel="client updates")
        if seeds > 1:
            left.set_title(f"mean ± standard deviation of {seeds} seeds", color=GREY)
        _reference_line(outcome, left, right)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), handlelength=2.4)
        save_figure(figure, path)


def draw_privacy(outcome: ComparisonResult, path: Path) -> bool:
    """Accuracy over ε, the most that any client has spent so far; False, and no figure, where nobody spent any."""
    guarded = [each for each in outcome.contenders if any(_spent(result) for result in each.results)]
    if not guarded:
        return False
    with rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        for number, contender in enumerate(guarded):
            curves = [_spent(result) for result in contender.results]
            x, y = (np.mean([[point[part] for point in curve] for curve in curves], axis=0) for part in (0, 1))
            axes.plot(x, y, linewidth=1.4, marker="o", markersize=2, label=contender.name, **line_look(number))
        free = [each for each in outcome.contenders if each.results and each not in guarded]
        for number, contender in enumerate(free, start=len(guarded)):
            level = float(np.mean([result.accuracy_last for result in contender.results]))
            axes.axhline(level, linewidth=1.1, label=f"{contender.name}, not private", **line_look(number))
        axes.set(xscale="log", xlabel="ε, the most that any client has spent", ylabel="test accuracy")
        axes.xaxis.set_major_formatter(LogFormatter())
        axes.xaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.grid(axis="y", color="#E4E4E4", linewidth=0.6)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(2, len(labels)), handlelength=2.4)
        save_figure(figure, path)
    return True


def _spent(result: Result) -> list[tuple[float, float]]:
    """(ε, accuracy) after every evaluation of a private run."""
    return [(row["epsilon"], row["accuracy"]) for row in result.history if row.get("epsilon")]


def draw_holdings(report: HoldingsReport, path: Path) -> None:
    """Samples of every client above, the mix of their classes below."""
    order = _order(report)
    counts = joined_classes(report.histograms[order])
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(1, totals)[:, None]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.8), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.4))
        draw_bars(upper, report.sizes[report.looked_at[order]], "#6F7C85")
        upper.set(ylabel="samples", title=_title(report))
        upper.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        upper.tick_params(axis="x", length=0)
        colours = class_colours(counts.shape[1])
        tops = shares.cumsum(axis=1)
        for shade in reversed(range(counts.shape[1])):  # each over the last: bars side by side would show seams
            draw_bars(lower, tops[:, shade], colours(shade))
        lower.set(ylabel="class mix", ylim=(0, 1), xlim=(-0.5, len(order) - 0.5))
        lower.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        _name_clients(lower, report, order)
        _name_classes(figure, (upper, lower), report.classes, colours)
        save_figure(figure, path)


def draw_recall(recall: Recall, path: Path) -> None:
    """What a followed chain knew of each client's samples after every hop: rows are hops, columns clients."""
    hops = len(recall.clients)
    known = np.full((hops, hops), np.nan)
    for hop, row in enumerate(recall.matrix):
        known[hop, : len(row)] = row
    transfer = "" if recall.backward_transfer is None else f", backward transfer {100 * recall.backward_transfer:.1f} %"
    with rc_context(STYLE):
        figure = Figure(figsize=(4.6, 4.0), layout="constrained")
        axes = figure.subplots()
        picture = axes.imshow(known, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        axes.set(xlabel="accuracy on client", ylabel="after client", title=f"round {recall.round}{transfer}")
        if hops <= MOST_NUMBERED:
            axes.set_xticks(range(hops), list(map(str, recall.clients)), rotation=90 if hops > 10 else 0)
            axes.set_yticks(range(hops), list(map(str, recall.clients)))
        else:
            axes.set(xticks=[], yticks=[])
        bar = figure.colorbar(picture, ax=axes, format=PercentFormatter(1, decimals=0))
        bar.outline.set_visible(False)
        save_figure(figure, path)


def accuracy_over(axes: Axes, lines: Sequence[Line], key: str, unit: float) -> None:
    """One line for each method over a column of its histories; a band where there are several seeds."""
    for number, (name, histories) in enumerate(lines):
        x = np.mean([[row[key] / unit for row in history] for history in histories], axis=0)
        y = np.array([[row["accuracy"] for row in history] for history in histories])
        mean = y.mean(axis=0)
        look = line_look(number)
        axes.plot(x, mean, linewidth=1.4, marker="o" if len(x) == 1 else "", label=name, zorder=3, **look)
        if len(y) > 1:
            std = y.std(axis=0, ddof=1)
            low, high = np.clip(mean - std, 0, 1), np.clip(mean + std, 0, 1)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0, zorder=2)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=key != "bytes"))
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.6)
    axes.set_axisbelow(True)


def line_look(number: int) -> dict[str, Any]:
    """The colour of a line and, where colours run out, another style."""
    style = LINE_STYLES[number // len(LINE_COLOURS) % len(LINE_STYLES)]
    return {"color": LINE_COLOURS[number % len(LINE_COLOURS)], "linestyle": style}


def _reference_line(outcome: ComparisonResult, *panels: Axes) -> None:
    """The accuracy that the methods are measured against, if there is one."""
    if outcome.reference == 1:
        return
    name = "centralised training" if outcome.comparison.eval.reference is None else "reference"
    for axes in panels:
        axes.axhline(outcome.reference, color=GREY, linestyle="--", linewidth=1.1, zorder=1, label=name)


def _order(report: HoldingsReport) -> NDArray[np.int64]:
    """Few clients by number; many by main class and its share, every so many of them if they are very many."""
    clients = len(report.looked_at)
    if clients <= MOST_NUMBERED:
        return np.arange(clients)
    share = report.histograms.max(axis=1) / np.maximum(1, report.histograms.sum(axis=1))
    order = np.lexsort((-share, report.histograms.argmax(axis=1)))
    return order[np.linspace(0, clients - 1, min(clients, MOST_BARS)).astype(np.int64)]


def class_colours(shades: int) -> ListedColormap:
    """One colour for each class."""
    if shades <= len(CLASS_COLOURS):
        return ListedColormap(CLASS_COLOURS[:shades])
    return ListedColormap(colormaps["viridis"](np.linspace(0, 1, shades)))


def draw_bars(axes: Axes, heights: NDArray[Any], colour: Any) -> None:
    """Few bars stand apart, many are one shape."""
    if len(heights) <= MOST_NUMBERED:
        axes.bar(np.arange(len(heights)), heights, 0.86, color=colour, linewidth=0)
    else:
        axes.stairs(heights, np.arange(len(heights) + 1) - 0.5, fill=True, color=colour, linewidth=0)


def _title(report: HoldingsReport) -> str:
    return f"{report.name}: {len(report.sizes):,} clients, {int(report.sizes.sum()):,} samples"


def _name_clients(axes: Axes, report: HoldingsReport, order: NDArray[np.int64]) -> None:
    if len(report.looked_at) <= MOST_NUMBERED:
        axes.set_xticks(range(len(order)))
        axes.set_xlabel("client")
    else:
        axes.set_xticks([])
        axes.set_xlabel("clients, ordered by their most frequent class")


def _name_classes(figure: Figure, panels: Sequence[Axes], classes: int, colours: ListedColormap) -> None:
    """A key for few classes, a scale for many."""
    scale = ScalarMappable(Normalize(-0.5, classes - 0.5), colours)
    bar = figure.colorbar(scale, ax=list(panels), label="class", aspect=30, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    bar.ax.yaxis.set_major_locator(MaxNLocator(10, integer=True))


def save_figure(figure: Figure, path: Path, dpi: int = DPI) -> None:
    """Write a figure whole or not at all."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise SpecError(f"{path}: a figure must end in {', '.join(f'.{each}' for each in FORMATS)}")
    write_atomically(path, drawn(figure, kind, dpi))


def drawn(figure: Figure, kind: str, dpi: int) -> bytes:
    """A figure as the bytes of a file; equal figures have equal bytes."""
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=dpi, metadata=FORMATS[kind])
    return content.getvalue()
