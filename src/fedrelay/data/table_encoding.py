"""Encodes tables as model inputs: scaled numbers, one-hot categories, and a mark where a value was missing.

`TableStatistics` are sums over rows. Those of several clients add up, so clients can agree on an encoding by exchanging
sums instead of rows. `TableEncoding`, which follows from the sums, is all that encoding a row needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.csv_table import LARGEST
from fedrelay.errors import DataError

EMPTY_CELLS = ("", "?")
"""Cells without a value in columns that were read; `MISSING_WORDS` of `table_column_reader.py` became "" there."""

NUMBER_BYTES = 8
"""A count, sum, mean or deviation is a 64-bit number."""

Cells = Mapping[str, Sequence[str] | NDArray[Any]]
"""Column → its cells: text, or an array of numbers in which NaN is a missing value."""


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
    def deviation(self) -> float | None:
        """The standard deviation; None for a constant column, by which nothing can be scaled."""
        variance = self.squares / self.known - self.mean**2 if self.known else 0.0
        return float(np.sqrt(variance)) if variance > 1e-12 * max(1.0, self.mean**2) else None


@dataclass(frozen=True)
class TableStatistics:
    """Sums over rows: all that clients must know of each other to agree on an encoding."""

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
        counts = {name: Counter(cell for cell in table[name] if cell not in EMPTY_CELLS) for name in categorical}
        return cls(len(next(iter(table.values()), ())), numbers, counts)

    def __add__(self, other: TableStatistics) -> TableStatistics:
        return TableStatistics(
            self.rows + other.rows,
            {name: sums + other.numbers[name] for name, sums in self.numbers.items()},
            {name: counts + other.categories[name] for name, counts in self.categories.items()},
        )

    @property
    def bytes(self) -> int:
        """What a client sends: the number of rows, three numbers a column, and categories by name with their count."""
        categories = sum(NUMBER_BYTES * len(counts) + text_bytes(counts) for counts in self.categories.values())
        return NUMBER_BYTES * (1 + 3 * len(self.numbers)) + categories

    @property
    def empty_columns(self) -> list[str]:
        """The columns in which no row has a value."""
        numbers = [name for name, sums in self.numbers.items() if not sums.known]
        return [*numbers, *(name for name, counts in self.categories.items() if not counts.total())]

    def encoding(self, *, scaled: bool = True, mark_missing: bool = True) -> TableEncoding:
        """The encoding that follows from these sums.

        Args:
            scaled: Whether numbers are standardised.
            mark_missing: Whether columns with missing values get a second column that marks them.
        """
        numbers = {}
        for name, sums in self.numbers.items():
            shift, scale = (sums.mean, sums.deviation or 1.0) if scaled else (0.0, 1.0)
            numbers[name] = NumberEncoding(sums.mean, shift, scale, mark_missing and sums.known < self.rows)
        categories = {
            name: CategoryEncoding(
                tuple(sorted(counts)),
                min(counts, key=lambda each: (-counts[each], each), default=""),
                mark_missing and counts.total() < self.rows,
            )
            for name, counts in self.categories.items()
        }
        return TableEncoding(numbers, categories)


@dataclass(frozen=True)
class NumberEncoding:
    """How a numeric column is encoded: (value - shift) / scale."""

    missing: float
    """What replaces a missing value: the mean."""

    shift: float
    scale: float
    marked: bool
    """Whether a second column marks missing values."""


@dataclass(frozen=True)
class CategoryEncoding:
    """How a categorical column is encoded: one column for each known category."""

    categories: tuple[str, ...]
    missing: str
    """What replaces a missing value: the most frequent category (of several, the first by name)."""

    marked: bool
    """Whether one more column marks missing values."""


@dataclass(frozen=True)
class TableEncoding:
    """How rows become model inputs."""

    numbers: Mapping[str, NumberEncoding]
    categories: Mapping[str, CategoryEncoding]

    def encode(self, table: Cells) -> NDArray[np.float32]:
        """Rows as model inputs; `feature_names` describes the columns. An unknown category becomes zeros."""
        columns: list[NDArray[np.float64]] = []
        for name, number in self.numbers.items():
            values = numeric_column(table, name)
            unknown = np.isnan(values)
            columns.append((np.where(unknown, number.missing, values) - number.shift) / number.scale)
            if number.marked:
                columns.append(unknown.astype(np.float64))
        for name, category in self.categories.items():
            cells = np.array(table[name], dtype=object)
            unknown = np.isin(cells, EMPTY_CELLS)
            cells[unknown] = category.missing
            columns.extend((cells == each).astype(np.float64) for each in category.categories)
            if category.marked:
                columns.append(unknown.astype(np.float64))
        return np.stack(columns, axis=1).astype(np.float32)

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns: `age`, `age missing`, `thal = 7`."""
        names = []
        for name, number in self.numbers.items():
            names += [name, f"{name} missing"] if number.marked else [name]
        for name, category in self.categories.items():
            names += [f"{name} = {each}" for each in category.categories]
            names += [f"{name} missing"] if category.marked else []
        return names

    @property
    def bytes(self) -> int:
        """What a client receives: two numbers a column (mean and deviation), categories by name and which of them
        replaces a missing value, and for every column a byte that says whether missing values are marked."""
        categories = sum(NUMBER_BYTES + text_bytes(each.categories) for each in self.categories.values())
        return 2 * NUMBER_BYTES * len(self.numbers) + categories + len(self.numbers) + len(self.categories)

    def with_numbers_of(self, own: TableStatistics) -> TableEncoding:
        """The encoding with a client's own means and deviations.

        Columns that it knows no value of stay as they are; columns that are constant there keep the scale, so that
        other values, of test rows, are not many deviations away.
        """
        numbers = {
            name: replace(number, missing=sums.mean, shift=sums.mean, scale=sums.deviation or number.scale)
            if (sums := own.numbers[name]).known
            else number
            for name, number in self.numbers.items()
        }
        return replace(self, numbers=numbers)


def text_bytes(texts: Iterable[str]) -> int:
    """The bytes of texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def numeric_column(table: Cells, name: str) -> NDArray[np.float64]:
    """The numbers of a column; NaN where a value is missing.

    Raises:
        DataError: A cell is not a finite float32 number.
    """
    column = table[name]
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return column
    values = np.full(len(column), np.nan)
    for row, cell in enumerate(column):
        if cell in EMPTY_CELLS:
            continue
        try:
            values[row] = float(cell)
        except ValueError:
            values[row] = np.nan
        if not abs(values[row]) <= LARGEST:
            raise DataError(f"column {name!r}, row {row + 1}: {cell[:40]!r} is not a finite float32 number")
    return values
