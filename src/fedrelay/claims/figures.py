"""A claim as a picture: learning curves of its comparisons, bars for its groups."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedrelay.claims import criteria
from fedrelay.claims.cases import Case
from fedrelay.claims.studies import CompareStudy, GroupStudy, Study
from fedrelay.files import write_atomically
from fedrelay.metrics.curves import mean_std
from fedrelay.report.plots import GREY, LINE_COLOURS, STYLE, Line, accuracy_over, drawn

DPI = 100
COLOURS = 64
MOST_ACROSS = 3
"""So many panels stand side by side, further ones below them."""

FEWEST_LINES = 2
"""Where a criterion names fewer methods of a comparison, all of them are drawn."""

Panel = tuple[str, CompareStudy | GroupStudy, str]
"""Its title, the study, and for groups the measure."""


def draw_case(case: Case, path: Path) -> bool:
    """Draw what there is to see of a claim; False where there is nothing."""
    panels = list(_panels(case))
    if not panels:
        return False
    across = min(MOST_ACROSS, len(panels))
    shelves = -(-len(panels) // across)
    with rc_context(STYLE):
        figure = Figure(figsize=(1.0 + 2.9 * across, 2.9 * shelves), layout="constrained")
        grid = figure.subplots(shelves, across, squeeze=False)
        for axes, (title, study, measure) in zip(grid.flat, panels, strict=False):
            if isinstance(study, CompareStudy):
                _draw_curves(axes, study, _named(case, study))
            else:
                _draw_groups(axes, study, measure)
            axes.set_title(title, color=GREY)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        write_atomically(path, _lightened(drawn(figure, "png", DPI)))
    return True


def _lightened(picture: bytes) -> bytes:
    """The same picture with as many colours as it takes."""
    content = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as whole:
        whole.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(content, "PNG", optimize=True)
    return content.getvalue()


def _panels(case: Case) -> Iterator[Panel]:
    """One for each comparison that has curves, one for each measure of groups that the criterion names."""
    several = len(case.studies) > 1
    for name, study in case.studies.items():
        title = name.replace("_", " ") if several else ""
        if isinstance(study, CompareStudy) and any(study.subject(each, case.seeds[0]).curve for each in study.subjects):
            yield title, study, ""
        elif isinstance(study, GroupStudy):
            for measure in _measures(case, study):
                yield title, study, measure


def _asked(case: Case, study: Study) -> list[tuple[str, str | None]]:
    """Subjects of a study that the criteria name, and the measures asked of them."""
    named = chain.from_iterable(criteria.names(criterion) for criterion in case.claim.criteria)
    found = [(case.study_of(name), measure) for name, measure in named]
    return [(subject, measure) for (owner, subject), measure in found if owner is study]


def _measures(case: Case, study: Study) -> list[str]:
    return list(dict.fromkeys(measure for _, measure in _asked(case, study) if measure is not None))


def _named(case: Case, study: Study) -> tuple[str, ...]:
    named = {subject for subject, _ in _asked(case, study)}
    return study.subjects if len(named) < FEWEST_LINES else tuple(each for each in study.subjects if each in named)


def _draw_curves(axes: Axes, study: CompareStudy, subjects: Sequence[str]) -> None:
    """Accuracy over rounds; seeds of unequal length (a run that diverged) end with the shortest."""
    lines = []
    for name in subjects:
        curves = [study.subject(name, seed).curve for seed in study.seeds]
        shortest = min(map(len, curves))
        if shortest:
            lines.append(Line(study.label(name), [[dict(row) for row in curve[:shortest]] for curve in curves]))
    accuracy_over(axes, lines, "round", 1)
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))  # panels beside each other are compared
    axes.legend(fontsize=7, handlelength=2.2, loc="best")


def _draw_groups(axes: Axes, study: GroupStudy, measure: str) -> None:
    """One bar for each way, with the deviation over seeds."""
    bars = []
    for name in study.subjects:
        values = [study.subject(name, seed).values.get(measure) for seed in study.seeds]
        known = [value for value in values if value is not None]
        if known:
            bars.append((name.replace("_", " "), *mean_std(known)))
    names, means, deviations = zip(*bars, strict=True) if bars else ((), (), ())
    axes.barh(names, means, xerr=deviations, color=LINE_COLOURS[0], height=0.7, error_kw={"ecolor": GREY})
    axes.invert_yaxis()
    axes.set_xlabel(measure.replace("_", " "))
