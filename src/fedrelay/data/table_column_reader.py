"""The columns of a table, from a CSV file, a Parquet file or a data frame: numbers or text.

Numbers are float64 with NaN where a value is missing, text is an array of `str` with "" there. In a CSV file a column
has numbers if every known cell is one; elsewhere the type of the column decides. Cells of a CSV file are also kept as
they are written, because codes such as 01 are no numbers, and only the role of a column says whether it has codes.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.csv_table import LARGEST, read_columns
from fedrelay.data.loaders.file_checks import damaged, missing, reading
from fedrelay.errors import DataError

Columns = dict[str, NDArray[Any]]
"""Column → its values, all of the same length."""

TABLE_FILES = (".csv", ".parquet")
"""The endings of files that are tables."""

MISSING_WORDS = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
"""Text that stands for a missing value, in small letters; capitals mean the same."""

_WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0*$")


@dataclass(frozen=True)
class Column:
    """A column whose role is not known yet."""

    values: NDArray[Any]
    """Numbers or text."""

    written: NDArray[Any] | None = None
    """The cells of a file that has only text."""

    unfit: str = ""
    """Why the column is neither numbers nor text, if so; it can only be dropped."""

    @property
    def cells(self) -> NDArray[Any]:
        """The values before text is taken for numbers."""
        return self.values if self.written is None else self.written

    @property
    def texts(self) -> NDArray[Any]:
        """The values as names: of categories, labels or clients."""
        return as_text(self.cells)


def is_table_file(path: Path) -> bool:
    """Whether the ending of a file says that it is a table."""
    return path.suffix.lower() in TABLE_FILES


def read_table_columns(path: Path) -> dict[str, Column]:
    """The columns of a `.csv` or `.parquet` file.

    Raises:
        DataError: The file is missing, damaged or empty.
    """
    if not is_table_file(path):
        raise damaged(path, f"is no table; tables are {' and '.join(TABLE_FILES)} files")
    if not path.is_file():
        raise missing(path)
    try:
        found = _parquet_columns(path) if path.suffix.lower() == ".parquet" else _csv_columns(path)
        return _checked(found)
    except DataError as error:
        raise error if str(error).startswith(str(path)) else damaged(path, str(error)) from None


def frame_columns(frame: Any) -> dict[str, Column]:
    """The columns of a data frame, or of a mapping from column to values.

    Raises:
        DataError: It is neither, is empty, or has columns of other shapes or lengths.
    """
    names = list(frame) if isinstance(frame, Mapping) else getattr(frame, "columns", None)
    if names is None:
        raise DataError(
            f"table: must be a path, a pandas DataFrame or a mapping column → values, got {type(frame).__name__}"
        )
    return _checked({str(name): _column(str(name), frame[name]) for name in names})


def as_text(column: NDArray[Any]) -> NDArray[Any]:
    """A column as text: 1, not 1.0; "" where a value is missing."""
    if column.dtype.kind != "f":
        return column
    values, places = np.unique(column, return_inverse=True)
    return np.array([_number_as_text(value) for value in values.tolist()], dtype=object)[places]


def is_missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Where values of a column are missing."""
    return np.isnan(column) if column.dtype.kind == "f" else np.asarray(column == "", dtype=np.bool_)


def check_size(name: str, values: NDArray[np.float64]) -> None:
    """Refuse numbers that models cannot take.

    Raises:
        DataError: A number is infinite or too large for float32.
    """
    too_large = np.abs(values) > LARGEST
    if too_large.any():
        row = int(too_large.argmax())
        raise DataError(
            f"column {name!r}, row {row + 1}: {values[row]:g} is not a finite float32 number, which are at most "
            f"{LARGEST:.2g}; correct or drop it"
        )


def chosen_rows(columns: Columns, rows: NDArray[np.int64]) -> Columns:
    """Some of the rows."""
    return {name: column[rows] for name, column in columns.items()}


def _number_as_text(value: float) -> str:
    if np.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() else f"{value:.15g}"


def _checked(columns: dict[str, Column]) -> dict[str, Column]:
    lengths = {len(column.values) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"columns must have the same length, got {', '.join(map(str, sorted(lengths)))}")
    if not lengths or lengths == {0}:
        raise DataError("has no rows")
    return columns


def _csv_columns(path: Path) -> dict[str, Column]:
    return {name: _parsed(cells) for name, cells in read_columns(path).items()}


def _parsed(cells: Iterable[str]) -> Column:
    """Numbers if every known cell is one, else text."""
    known = [_known(cell) for cell in cells]
    # Programs write whole numbers as 1.0 where another row has no value: this is the code 1, in whatever file.
    written = np.array([_WHOLE_NUMBER.sub(r"\1", cell) for cell in known], dtype=object)
    try:
        values = np.array([float(cell or "nan") for cell in known])
    except ValueError:
        return Column(written)
    return Column(values, written)


def _parquet_columns(path: Path) -> dict[str, Column]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise damaged(path, "Parquet needs the package pyarrow; pip install 'fedrelay[tables]'") from None
    try:
        with reading(path):
            table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowException as error:
        raise damaged(path, f"is not a Parquet file ({str(error).splitlines()[0]})") from None
    names = table.column_names
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise damaged(path, f"duplicate column {duplicates[0]!r}")
    is_number = (pyarrow.types.is_integer, pyarrow.types.is_floating, pyarrow.types.is_boolean)
    found = {}
    for name, column in zip(names, table.columns, strict=True):
        plain = any(check(column.type) for check in is_number)
        values = column.to_numpy() if plain else np.array(column.to_pylist(), dtype=object)
        found[name] = _column(name, values)
    return found


def _column(name: str, values: Any) -> Column:
    """A typed column."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"column {name!r}: must have one value for each row, got shape {list(array.shape)}")
    if array.dtype.kind in "biuf":
        return Column(array.astype(np.float64))
    if array.dtype.kind in "Mm":  # as whole numbers they would be counts of nanoseconds
        return _unfit(array, "dates" if array.dtype.kind == "M" else "durations")
    missing = np.asarray(values.isna()) if hasattr(values, "isna") else [_is_nothing(value) for value in array]
    known = [None if absent else value for value, absent in zip(array.tolist(), missing, strict=True)]
    if all(value is None or isinstance(value, numbers.Real) for value in known):
        return Column(np.array([np.nan if value is None else _float(value) for value in known]))
    if wrong := [value for value in known if value is not None and not isinstance(value, str)]:
        return _unfit(array, f"values of type {type(wrong[0]).__name__}")
    return Column(np.array(["" if value is None else _known(value.strip()) for value in known], dtype=object))


def _unfit(values: NDArray[Any], what: str) -> Column:
    return Column(np.full(len(values), np.nan), unfit=f"has {what}, but must have numbers or text")


def _known(cell: str) -> str:
    """A cell; "" if it stands for a missing value."""
    return "" if cell.lower() in MISSING_WORDS else cell


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 300 digits
        return np.inf
