"""A CSV table of numbers, one sample in each line: read as a whole, or refused with the place of the first mistake."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.loaders.files import damaged, read_text
from fedrelay.errors import DataError
from fedrelay.experiment.messages import unknown

LARGEST = float(np.finfo(np.float32).max)

Line = tuple[int, list[str]]
"""The number of a line in its file, and its cells."""


def read_table(path: Path, label: str | None, most: int, *, header: bool = True) -> dict[str, NDArray[Any]]:
    """Samples `x` and labels `y`, which are the named column or the last, each below `most`.

    Without a header, columns are called 1, 2, … in their order.
    """
    lines = list(_lines(path))
    if not lines:
        raise damaged(path, "is empty; a table has a line of names, then one line for each sample")
    names = _names(path, lines[0]) if header else [str(number + 1) for number in range(len(lines[0][1]))]
    body = lines[1:] if header else lines
    if len(names) < 2:
        hint = (
            "; columns are separated by commas, not by semicolons" if ";" in names[0] or ";" in lines[0][1][0] else ""
        )
        raise damaged(path, f"has one column; samples and labels need at least two{hint}")
    if not body:
        raise damaged(path, "has names but no samples")
    if label is not None and label not in names:
        raise damaged(path, f"--label: {unknown('column', label, names)}")
    column = names.index(label) if label is not None else len(names) - 1
    rows = np.array([_numbers(path, names, line) for line in body])
    labels = _labels(path, names[column], rows[:, column], [number for number, _ in body], most)
    return {"x": np.delete(rows, column, axis=1).astype(np.float32), "y": labels}


def _lines(path: Path) -> Iterator[Line]:
    """All lines with something in them."""
    if not path.is_file():
        raise damaged(path, "there is no such file")
    reader = csv.reader(io.StringIO(read_text(path).removeprefix("\ufeff")), skipinitialspace=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise damaged(path, f"line {reader.line_num}: {error}") from None


def _names(path: Path, line: Line) -> list[str]:
    number, names = line
    if all(_is_number(name) for name in names):
        raise damaged(
            path, f"line {number} holds numbers alone, where the names of columns belong; add them, or say --no-header"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise damaged(path, f"two columns have the name {twice[0]!r}")
    return names


def _numbers(path: Path, names: Sequence[str], line: Line) -> list[float]:
    """The finite numbers of a line."""
    number, cells = line
    if len(cells) != len(names):
        raise damaged(path, f"line {number} has {len(cells)} values for {len(names)} columns")
    try:
        values = [float(cell) for cell in cells]
    except ValueError:
        values = []
    if not values or not all(abs(value) <= LARGEST for value in values):
        raise _mistake(path, names, line)
    return values


def _mistake(path: Path, names: Sequence[str], line: Line) -> DataError:
    """What is wrong with a line in which something is."""
    number, cells = line
    place, cell = next((at, cell) for at, cell in enumerate(cells) if not _is_number(cell, LARGEST))
    what = (
        "is empty"
        if not cell
        else f"{cell[:40]!r} is no finite number"
        if _is_number(cell)
        else f"{cell[:40]!r} is no number"
    )
    return damaged(path, f"line {number}, column {names[place]!r}: {what}")


def _labels(path: Path, name: str, values: NDArray[np.float64], lines: Sequence[int], most: int) -> NDArray[np.int64]:
    wrong = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= most))
    if len(wrong):
        at, value = lines[wrong[0]], values[wrong[0]]
        raise damaged(path, f"line {at}, column {name!r}: {value:.15g} is no label; labels are 0, 1, … {most - 1:,}")
    return values.astype(np.int64)


def _is_number(cell: str, largest: float | None = None) -> bool:
    """Whether a cell is a number, and within bounds where there are some."""
    try:
        value = float(cell)
    except ValueError:
        return False
    return largest is None or abs(value) <= largest
