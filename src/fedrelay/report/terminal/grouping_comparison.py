"""Compares groupings of the same clients, for `fedrelay group`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import ProfileInputs, ProfilingResult
from fedrelay.metrics.skew import GroupQuality, cpd_matrix, group_histograms, group_quality
from fedrelay.report.figure_specs import Figure, grouping_figures, shown_groups
from fedrelay.report.format import NONE, count, percent, plural
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table
from fedrelay.routes.base import Groups

SINGLE = "single clients"
"""The baseline of all groupings: every client is its own group."""

MOST_ACROSS = 7
"""The most groupings side by side in a figure."""

LONGEST_NAME = 18
"""Longer names take two lines of the table."""


@dataclass(frozen=True)
class GroupingResult:
    """The groups that one grouping formed, and their quality."""

    name: str
    grouping: Grouping | None
    groups: Groups
    histograms: NDArray[np.int64]
    quality: GroupQuality
    profiles: ProfilingResult | None = None
    """What the groups were formed by."""

    def summary(self) -> dict[str, Any]:
        """Return what `--json` prints of this grouping."""
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
class GroupingComparison:
    """Several groupings of the same clients."""

    data: str
    clients: int
    classes: int
    samples: int
    results: tuple[GroupingResult, ...]

    def summary(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        facts = {"data": self.data, "clients": self.clients, "classes": self.classes, "samples": self.samples}
        return {**facts, "groupings": [result.summary() for result in self.results]}


def grouping_report(inputs: ProfileInputs, choices: Mapping[str, Grouping]) -> GroupingComparison:
    """Form groups with every grouping; equal client profiles are computed once.

    Raises:
        SpecError: a grouping does not fit the data.
    """
    federation = inputs.federation
    for grouping in choices.values():
        grouping.check_inputs(inputs)
    sizes = federation.sample_counts()
    histograms = np.stack([federation.histogram(client) for client in range(federation.client_count)])

    def result(name: str, groups: Groups, profiles: ProfilingResult | None = None) -> GroupingResult:
        quality = group_quality(groups, histograms, sizes)
        return GroupingResult(name, choices.get(name), groups, group_histograms(groups, histograms), quality, profiles)

    results = [result(SINGLE, tuple((client,) for client in np.flatnonzero(sizes).tolist()))]
    profiled: dict[str, ProfilingResult] = {}
    for name, grouping in choices.items():
        key = grouping.profile_cache_key
        profiles = profiled[key] = profiled.get(key) or grouping.profile_clients(inputs)
        results.append(result(name, grouping.form_groups(inputs, profiles), profiles))
    return GroupingComparison(
        federation.name, federation.client_count, federation.class_count, int(sizes.sum()), tuple(results)
    )


def grouping_page(report: GroupingComparison) -> RenderableType:
    """Show all groupings in one table, and recommend the one with the most similar groups."""
    table = plain_table("\ngrouping", "\ngroups", "clients\neach", "samples\neach", "median\nCPD", "balance\nratio",
                        "classes\ncovered", numeric=True)  # fmt: skip
    best = _recommended(report.results)
    for result in report.results:
        quality = result.quality
        table.add_row(
            _folded(result.name),
            count(len(result.groups)),
            _span(quality.clients),
            _span(quality.samples),
            _decimals(quality.median_cpd),
            f"{quality.balance_ratio:.3f}",
            percent(quality.covered_classes),
            style="bold" if result is best else None,
        )
    title = Text(f"{report.data}: {plural(report.clients, 'client')}, {count(report.samples)} samples", style="bold")
    hints = Text(
        "  median CPD: class distance of two groups; 0: same mix, 1.26: no class in common\n"
        "  balance ratio: rarest over most frequent class of a group, mean over groups",
        style="dim",
    )
    return Group(title, Text(), table, Text(), hints, *_advice(best))


def grouping_panels(report: GroupingComparison) -> tuple[list[Figure | None], int]:
    """Return the class mix and the distances of every grouping, row by row, and the panels side by side."""
    shown = [result.histograms[shown_groups(result.histograms)] for result in report.results]
    distances = [cpd_matrix(histograms) for histograms in shown]
    furthest = max(float(matrix.max()) for matrix in distances) or 1.0
    across = -(-len(report.results) // -(-len(report.results) // MOST_ACROSS))
    pairs: list[tuple[Figure | None, Figure | None]] = []
    for result, counts, matrix in zip(report.results, shown, distances, strict=True):
        noun = "group" if result.grouping else "client"
        title, median = f"{result.name}\n{plural(len(result.groups), noun)}", _decimals(result.quality.median_cpd)
        pairs.append(grouping_figures(title, f"{noun}s", counts, matrix, furthest, median))
    pairs += [(None, None)] * (-len(pairs) % across)
    rows = [list(zip(*pairs[start : start + across], strict=True)) for start in range(0, len(pairs), across)]
    return [panel for mixes, matrices in rows for panel in (*mixes, *matrices)], across


def _recommended(results: Sequence[GroupingResult]) -> GroupingResult | None:
    """The grouping with the lowest median CPD, as the table shows it; of equal ones, the best balanced."""
    formed = [each for each in results if each.grouping is not None and each.quality.median_cpd is not None]
    return min(formed, key=lambda each: (_shown(each.quality.median_cpd), -each.quality.balance_ratio), default=None)


def _shown(value: float | None) -> float:
    return float(_decimals(value or 0))


def _advice(best: GroupingResult | None) -> list[RenderableType]:
    if best is None or best.grouping is None:
        return []
    options = best.grouping.model_dump(exclude_defaults=True)
    words = "".join(f" --set grouping.{name}={value}" for name, value in options.items())
    return [
        Text(),
        facts_grid(
            {
                "recommended": f"{best.name}: lowest median CPD ({_decimals(best.quality.median_cpd)}), so its groups "
                "are most alike; of equal ones, the highest balance ratio",
                "use it": f"fedrelay run fedseq{words}, with the same data",
            }
        ),
    ]


def _folded(name: str) -> str:
    """Break a long name before its last word, so that the table fits a narrow terminal."""
    head, _, tail = name.rpartition("/")
    return f"{head}/\n  {tail}" if len(name) > LONGEST_NAME else name


def _range(values: NDArray[np.int64]) -> dict[str, float]:
    return {"min": int(values.min()), "mean": float(values.mean()), "max": int(values.max())}


def _span(values: NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return count(low) if low == high else f"{count(low)}–{count(high)}"


def _decimals(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"
