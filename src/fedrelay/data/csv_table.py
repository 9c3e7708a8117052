"""Reads the cells of a CSV file: a line of column names, then one line per sample."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedrelay.data.loaders.file_checks import damaged, missing, read_text

LARGEST = float(np.finfo(np.float32).max)

Line = tuple[int, list[str]]
"""(line number in the file, cells)."""


def read_columns(path: Path) -> dict[str, list[str]]:
    """Read the cells of every column as text; cells may be empty.

    Raises:
        DataError: The file is missing, empty, or a row has too few or too many cells.
    """
    lines = list(_lines(path))
    if len(lines) < 2:
        raise damaged(path, "needs a line of column names, then one line per sample")
    names, body = _names(path, lines[0]), lines[1:]
    if len(names) == 1 and ";" in names[0]:
        raise damaged(path, "has one column; separate columns by commas, not semicolons")
    for row, (_, cells) in enumerate(body, start=1):
        if len(cells) != len(names):
            raise damaged(path, f"row {row} has {len(cells)} values for {len(names)} columns")
    return {name: [cells[column] for _, cells in body] for column, name in enumerate(names)}


def _lines(path: Path) -> Iterator[Line]:
    """All lines that are not empty."""
    if not path.is_file():
        raise missing(path)
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
        raise damaged(path, f"line {number} should have column names but has only numbers; add names")
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise damaged(path, f"duplicate column {duplicates[0]!r}")
    return names


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
