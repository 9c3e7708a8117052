"""Encodes tables as model inputs: scaled numbers, one-hot categories, and a mark where a value was missing.

`TableStatistics`, all that encoding needs, are sums. Those of several clients add up, so clients can agree on an
encoding by exchanging sums instead of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import DataError

MISSING = ("", "?")
"""Cells without a value."""

Cells = Mapping[str, Sequence[str]]
"""Column → its cells, as text."""


@dataclass(frozen=True)
class NumberSums:
    """Sums over the known values of a numeric column."""

    known: int
    total: float
    squares: float

    def __add__(self, other: NumberSums) -> NumberSums:
        return NumberSums(self.known + other.known, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float:
        return self.total / self.known if self.known else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation; 1 for a constant column, so that dividing by it changes nothing."""
        variance = self.squares / self.known - self.mean**2 if self.known else 0.0
        return float(np.sqrt(variance)) if variance > 1e-12 * max(1.0, self.mean**2) else 1.0


@dataclass(frozen=True)
class TableStatistics:
    """What encoding a table needs to know of the rows it is fitted on."""

    rows: int
    numbers: Mapping[str, NumberSums]
    categories: Mapping[str, Counter[str]]
    """Categorical column → how often each category occurs."""

    @classmethod
    def of(cls, table: Cells, categorical: Sequence[str]) -> TableStatistics:
        """The statistics of some rows. Columns that are not categorical must have numbers.

        Raises:
            DataError: A cell of a numeric column is not a finite number.
        """
        numbers = {}
        for name in table:
            if name not in categorical:
                values = numeric_column(table, name)
                known = values[~np.isnan(values)]
                numbers[name] = NumberSums(len(known), float(known.sum()), float(np.square(known).sum()))
        counts = {name: Counter(cell for cell in table[name] if cell not in MISSING) for name in categorical}
        return cls(len(next(iter(table.values()), ())), numbers, counts)

    def __add__(self, other: TableStatistics) -> TableStatistics:
        return TableStatistics(
            self.rows + other.rows,
            {name: sums + other.numbers[name] for name, sums in self.numbers.items()},
            {name: counts + other.categories[name] for name, counts in self.categories.items()},
        )

    def encode(self, table: Cells) -> NDArray[np.float32]:
        """Rows as model inputs; `feature_names` describes the columns.

        A missing number becomes the mean, a missing category the most frequent one (of several, the first by name).
        A category that the statistics do not know becomes zeros.
        """
        columns: list[NDArray[np.float64]] = []
        for name, sums in self.numbers.items():
            values = numeric_column(table, name)
            unknown = np.isnan(values)
            columns.append((np.where(unknown, sums.mean, values) - sums.mean) / sums.deviation)
            if sums.known < self.rows:
                columns.append(unknown.astype(np.float64))
        for name, counts in self.categories.items():
            cells = np.array(table[name], dtype=object)
            unknown = np.isin(cells, MISSING)
            cells[unknown] = min(counts, key=lambda each: (-counts[each], each), default="")
            columns.extend((cells == category).astype(np.float64) for category in sorted(counts))
            if counts.total() < self.rows:
                columns.append(unknown.astype(np.float64))
        return np.stack(columns, axis=1).astype(np.float32)

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns: `age`, `age missing`, `thal = 7`."""
        names = []
        for name, sums in self.numbers.items():
            names += [name, f"{name} missing"] if sums.known < self.rows else [name]
        for name, counts in self.categories.items():
            names += [f"{name} = {category}" for category in sorted(counts)]
            names += [f"{name} missing"] if counts.total() < self.rows else []
        return names


def numeric_column(table: Cells, name: str) -> NDArray[np.float64]:
    """The numbers of a column; NaN where a value is missing.

    Raises:
        DataError: A cell is not a finite number.
    """
    values = np.full(len(table[name]), np.nan)
    for row, cell in enumerate(table[name]):
        if cell in MISSING:
            continue
        try:
            values[row] = float(cell)
        except ValueError:
            values[row] = np.inf
        if not np.isfinite(values[row]):
            raise DataError(f"column {name!r}, row {row + 1}: {cell[:40]!r} is not a finite number")
    return values
