"""Ways to form groups, side by side: how alike the groups are, and what each of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.grouping.base import Grouping
from fedrelay.grouping.profiles import ProfileInputs, ProfilingResult
from fedrelay.metrics.skew import GroupQuality, cpd_matrix, group_histograms, group_quality
from fedrelay.report.format import NONE, count, percent, plural
from fedrelay.report.holdings import joined_classes
from fedrelay.report.plots import GREY, STYLE, _name_classes, class_colours, draw_bars, save_figure
from fedrelay.report.tables import facts_grid, plain_table
from fedrelay.routes.base import Groups

SINGLE = "single clients"
"""What all ways are measured against: nobody travels with anybody."""

MOST_DRAWN = 300
"""So many groups are drawn, evenly chosen among more."""

MOST_ACROSS = 7
"""So many ways stand side by side in the picture, further ones below them."""

LONGEST_NAME = 18
"""Longer names take two lines of the table."""


@dataclass(frozen=True)
class Way:
    """One way to form groups, and what came of it."""

    name: str
    grouping: Grouping | None
    groups: Groups
    histograms: NDArray[np.int64]
    quality: GroupQuality

    def summary(self) -> dict[str, Any]:
        """The way in one object, as `--json` prints it."""
        quality = self.quality
        return {
            "name": self.name,
            "options": None if self.grouping is None else self.grouping.model_dump(exclude_defaults=True),
            "median_cpd": quality.median_cpd,
            "balance_ratio": quality.balance_ratio,
            "covered_classes": quality.covered_classes,
            "clients_per_group": _range(quality.clients),
            "samples_per_group": _range(quality.samples),
            "groups": [list(group) for group in self.groups],
        }


@dataclass(frozen=True)
class GroupingReport:
    """Several ways to group the same clients."""

    data: str
    clients: int
    classes: int
    samples: int
    ways: tuple[Way, ...]

    def summary(self) -> dict[str, Any]:
        """The report in one object."""
        facts = {"data": self.data, "clients": self.clients, "classes": self.classes, "samples": self.samples}
        return {**facts, "groupings": [way.summary() for way in self.ways]}


def grouping_report(evidence: ProfileInputs, choices: Mapping[str, Grouping]) -> GroupingReport:
    """Form groups in every one of these ways; those that describe clients alike do so once."""
    federation = evidence.federation
    for grouping in choices.values():
        grouping.check(evidence)
    sizes = federation.sizes()
    histograms = np.stack([federation.histogram(client) for client in range(federation.clients)])
    surveys: dict[str, ProfilingResult] = {}
    formed: dict[str, Groups] = {}
    for name, grouping in choices.items():
        described = grouping.description
        surveys[described] = surveys.get(described) or grouping.survey(evidence)
        formed[name] = grouping.form(evidence, surveys[described])
    singles: Groups = tuple((client,) for client in np.flatnonzero(sizes).tolist())

    def way(name: str, groups: Groups) -> Way:
        quality = group_quality(groups, histograms, sizes)
        return Way(name, choices.get(name), groups, group_histograms(groups, histograms), quality)

    ways = tuple(way(name, groups) for name, groups in {SINGLE: singles, **formed}.items())
    return GroupingReport(federation.name, federation.clients, federation.classes, int(sizes.sum()), ways)


def grouping_page(report: GroupingReport) -> RenderableType:
    """All ways in one table, and how to use the one whose groups are most alike."""
    table = plain_table("\ngrouping", "\ngroups", "clients\neach", "samples\neach", "median\nCPD", "balance\nratio",
                        "classes\ncovered", numeric=True)  # fmt: skip
    best = _most_alike(report.ways)
    for way in report.ways:
        quality = way.quality
        table.add_row(
            _folded(way.name),
            count(len(way.groups)),
            _span(quality.clients),
            _span(quality.samples),
            _decimals(quality.median_cpd),
            f"{quality.balance_ratio:.3f}",
            percent(quality.covered_classes),
            style="bold" if way is best else None,
        )
    title = Text(f"{report.data}: {plural(report.clients, 'client')}, {count(report.samples)} samples", style="bold")
    hints = Text(
        "  median CPD: how unlike groups are; 0: alike, 1.26: no class in common\n"
        "  balance ratio: rarest over commonest class in a group; both means over groups",
        style="dim",
    )
    return Group(title, Text(), table, Text(), hints, *_advice(best))


def draw_groupings(report: GroupingReport, path: Path) -> None:
    """For every way the class mix of its groups, and below it how unlike they are, pair by pair."""
    drawn = [way.histograms[_order(way.histograms)] for way in report.ways]
    distances = [cpd_matrix(histograms) for histograms in drawn]
    scale = ScalarMappable(PowerNorm(0.5, 0, max(float(matrix.max()) for matrix in distances) or 1.0), "magma_r")
    colours = class_colours(joined_classes(drawn[0]).shape[1])
    shelves = -(-len(report.ways) // MOST_ACROSS)
    across = -(-len(report.ways) // shelves)
    with rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 1.9 * across, 4.2 * shelves), layout="constrained")
        panels = figure.subplots(2 * shelves, across, squeeze=False)
        for axes in panels.flat:
            axes.set(xticks=[], yticks=[])
        for number, (way, histograms, matrix) in enumerate(zip(report.ways, drawn, distances, strict=True)):
            shelf, place = divmod(number, across)
            upper, lower = panels[2 * shelf, place], panels[2 * shelf + 1, place]
            upper.set_title(f"{way.name}\n{plural(len(way.groups), 'group' if way.grouping else 'client')}")
            _draw_mix(upper, histograms, colours)
            lower.imshow(matrix, cmap=scale.cmap, norm=scale.norm, interpolation="nearest")
            lower.set_title(f"median CPD {_decimals(way.quality.median_cpd)}", color=GREY)
            lower.spines[:].set_visible(False)
        for upper, lower in zip(panels[::2], panels[1::2], strict=True):
            _name_shelf(figure, list(upper), list(lower), report.classes, colours, scale)
        for number in range(len(report.ways), shelves * across):  # places that no way took
            for axes in panels[-2:, number % across]:
                axes.set_axis_off()
        save_figure(figure, path)


def _name_shelf(
    figure: Figure, upper: list[Axes], lower: list[Axes], classes: int, colours: ListedColormap, scale: ScalarMappable
) -> None:
    """What the panels of one shelf show: axes at its left, keys at its right."""
    upper[0].set(ylabel="class mix", yticks=[0, 0.5, 1])
    upper[0].yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    lower[0].set_ylabel("distance of groups")
    _name_classes(figure, upper, classes, colours)
    bar = figure.colorbar(scale, ax=lower, label="CPD", aspect=15, pad=0.01)
    bar.outline.set_visible(False)
    _, furthest = scale.get_clim()
    bar.set_ticks([furthest * share**2 for share in (0, 0.25, 0.5, 0.75, 1)])
    bar.ax.yaxis.set_major_formatter("{x:.2g}")


def _draw_mix(axes: Axes, histograms: NDArray[np.int64], colours: Any) -> None:
    counts = joined_classes(histograms)
    tops = (counts / np.maximum(1, counts.sum(axis=1))[:, None]).cumsum(axis=1)
    for shade in reversed(range(counts.shape[1])):  # each over the last: bars side by side would show seams
        draw_bars(axes, tops[:, shade], colours(shade))
    axes.set(ylim=(0, 1), xlim=(-0.5, len(counts) - 0.5))


def _order(histograms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups by their most frequent class, every so many of them if they are very many."""
    order = np.argsort(histograms.argmax(axis=1), kind="stable")
    return order[np.linspace(0, len(order) - 1, min(len(order), MOST_DRAWN)).astype(np.int64)]


def _most_alike(ways: Sequence[Way]) -> Way | None:
    """The way with the lowest median CPD."""
    formed = [way for way in ways if way.grouping is not None and way.quality.median_cpd is not None]
    return min(formed, key=lambda way: way.quality.median_cpd or 0, default=None)


def _advice(best: Way | None) -> list[RenderableType]:
    if best is None or best.grouping is None:
        return []
    options = best.grouping.model_dump(exclude_defaults=True)
    words = "".join(f" --set grouping.{name}={value}" for name, value in options.items())
    return [Text(), facts_grid({"most alike": best.name, "use it": f"fedrelay run fedseq{words}, with the same data"})]


def _folded(name: str) -> str:
    """A long name on two lines, broken before its last word: the table fits a narrow terminal."""
    head, _, tail = name.rpartition("/")
    return f"{head}/\n  {tail}" if len(name) > LONGEST_NAME else name


def _range(values: NDArray[np.int64]) -> dict[str, float]:
    return {"min": int(values.min()), "mean": float(values.mean()), "max": int(values.max())}


def _span(values: NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return count(low) if low == high else f"{count(low)}–{count(high)}"


def _decimals(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"
