"""Reads a CSV table of numbers, one sample per line. The first error is reported with its line and column."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.loaders.file_checks import damaged, read_text
from fedrelay.errors import DataError
from fedrelay.experiment.error_messages import unknown

LARGEST = float(np.finfo(np.float32).max)

Line = tuple[int, list[str]]
"""(line number in the file, cells)."""


def read_csv_samples(path: Path, label: str | None, classes: int, *, header: bool = True) -> dict[str, NDArray[Any]]:
    """Read samples `x` and labels `y`.

    Args:
        path: The CSV file.
        label: The name of the label column; None for the last column.
        classes: Labels must be below this number.
        header: Whether the first line has column names. Without it, columns are named 1, 2, ….

    Raises:
        DataError: The file is missing or has an error; the message names the line and column.
    """
    lines = list(_lines(path))
    if not lines:
        raise damaged(path, "is empty; it needs a line of column names, then one line per sample")
    numbered = [str(number + 1) for number in range(len(lines[0][1]))]
    names = _names(path, lines[0], ", or use --no-header") if header else numbered
    body = lines[1:] if header else lines
    if len(names) < 2:
        hint = "; separate columns by commas, not semicolons" if ";" in lines[0][1][0] else ""
        raise damaged(path, f"has one column; at least two are needed, for samples and labels{hint}")
    if not body:
        raise damaged(path, "has column names but no samples")
    if label is not None and label not in names:
        raise damaged(path, f"--label: {unknown('column', label, names)}")
    column = names.index(label) if label is not None else len(names) - 1
    rows = np.array([_numbers(path, names, line) for line in body])
    labels = _labels(path, names[column], rows[:, column], [number for number, _ in body], classes)
    return {"x": np.delete(rows, column, axis=1).astype(np.float32), "y": labels}


def read_columns(path: Path) -> dict[str, list[str]]:
    """Read the cells of every column as text; cells may be empty.

    Raises:
        DataError: The file is missing, empty, or a row has too few or too many cells.
    """
    lines = list(_lines(path))
    if len(lines) < 2:
        raise damaged(path, "needs a line of column names, then one line per sample")
    names, body = _names(path, lines[0]), lines[1:]
    for row, (_, cells) in enumerate(body, start=1):
        if len(cells) != len(names):
            raise damaged(path, f"row {row} has {len(cells)} values for {len(names)} columns")
    return {name: [cells[column] for _, cells in body] for column, name in enumerate(names)}


def _lines(path: Path) -> Iterator[Line]:
    """All lines that are not empty."""
    if not path.is_file():
        raise damaged(path, "file not found")
    reader = csv.reader(io.StringIO(read_text(path).removeprefix("\ufeff")), skipinitialspace=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise damaged(path, f"line {reader.line_num}: {error}") from None


def _names(path: Path, line: Line, otherwise: str = "") -> list[str]:
    number, names = line
    if all(_is_number(name) for name in names):
        raise damaged(path, f"line {number} should have column names but has only numbers; add names{otherwise}")
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise damaged(path, f"duplicate column {duplicates[0]!r}")
    return names


def _numbers(path: Path, names: Sequence[str], line: Line) -> list[float]:
    """The numbers of a line, all finite."""
    number, cells = line
    if len(cells) != len(names):
        raise damaged(path, f"line {number} has {len(cells)} values for {len(names)} columns")
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        values = []
    if not values or not all(abs(value) <= LARGEST for value in values):
        raise _line_error(path, names, line)
    return values


def _line_error(path: Path, names: Sequence[str], line: Line) -> DataError:
    """The error for a line with a cell that is not a finite number."""
    number, cells = line
    column, cell = next((at, cell) for at, cell in enumerate(cells) if not _is_number(cell, LARGEST))
    what = (
        "is empty"
        if not cell
        else f"{cell[:40]!r} is not a finite number"
        if _is_number(cell)
        else f"{cell[:40]!r} is not a number"
    )
    return damaged(path, f"line {number}, column {names[column]!r}: {what}")


def _labels(
    path: Path, name: str, values: NDArray[np.float64], lines: Sequence[int], classes: int
) -> NDArray[np.int64]:
    wrong = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= classes))
    if len(wrong):
        at, value = lines[wrong[0]], values[wrong[0]]
        raise damaged(
            path, f"line {at}, column {name!r}: {value:.15g} is not a label; labels are 0, 1, … {classes - 1:,}"
        )
    return values.astype(np.int64)


def _is_number(cell: str, largest: float | None = None) -> bool:
    """Whether a cell is a number, and not beyond `largest`."""
    try:
        value = float(cell)
    except ValueError:
        return False
    return largest is None or abs(value) <= largest
