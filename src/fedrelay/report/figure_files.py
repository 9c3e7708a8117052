"""Files of figures: their formats and styles. Drawing itself, which needs matplotlib, is in `drawing.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.files import write_atomically
from fedrelay.report.figure_specs import Figure
from fedrelay.report.palette import LIGHT

FORMATS: dict[str, dict[str, None]] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""The file formats, and the metadata that is left out so that equal figures have equal bytes."""

WIDTH = 7.2
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LIGHT["rule"],
    "axes.labelcolor": LIGHT["soft"],
    "axes.linewidth": 0.8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlecolor": LIGHT["ink"],
    "xtick.color": LIGHT["soft"],
    "ytick.color": LIGHT["soft"],
    "legend.frameon": False,
    "svg.hashsalt": "fedrelay",
    "text.parse_math": False,  # a label with two $ is no formula
    "pdf.fonttype": 42,  # fonts inside the file, as publishers ask
}

PAPER_STYLE: dict[Any, Any] = {
    **STYLE,
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
}
"""Letters of 8 points at the printed size."""

COLUMN = 3.4
"""Inches of one column of a page with two."""


def save_figures(
    path: Path,
    figures: Sequence[Figure | None],
    document: Mapping[str, Any] | None = None,
    columns: int = 1,
    width: float = WIDTH,
    style: Mapping[Any, Any] = STYLE,
) -> None:
    """Write figures as the panels of one file.

    Args:
        path: the file; its ending chooses the format.
        figures: panels row by row; None leaves a panel empty.
        document: what references in the figures point into.
        columns: panels side by side.
        width: of the whole file, in inches.
        style: settings of matplotlib.

    Raises:
        SpecError: the ending is none of .png, .pdf and .svg.
    """
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise SpecError(f"{path}: a figure must end in {', '.join(f'.{each}' for each in FORMATS)}")
    from fedrelay.report.drawing import render  # matplotlib takes a second to import

    write_atomically(path, render(figures, kind, document, columns, width=width, style=style))
