"""A table whose columns have roles: inputs, the target, and the client of every row."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.table_column_reader import (
    Column,
    Columns,
    as_text,
    check_size,
    chosen_rows,
    is_missing,
    read_table_columns,
)
from fedrelay.data.table_encoding import TableEncoding, TableStatistics, is_number, numeric_column
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import TableSettings, unknown
from fedrelay.files import expand_home

Ints = NDArray[np.int64]

MOST_LABELS = 100
"""A target of more different whole numbers may be labels or amounts: the user has to say."""

NODE_OPTION = "--"
"""What stands before the name of a role where it is an option of `fedrelay node`."""

MOST_CATEGORIES = 100
"""More different texts look like names or typing errors; the user has to say that they are categories."""

_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+")
"""A number as it is written in many countries, which a program takes for text."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
"""A date in ISO format, with or without a time."""

WITH_LABELS = ("classification", "binary")
ONE_TARGET = (*WITH_LABELS, "regression")
"""The built-in tasks with one target per row."""


@dataclass(frozen=True)
class Table:
    """Rows of a table. Where messages say `source`, they mean the file."""

    source: str
    inputs: Columns
    categorical: tuple[str, ...]
    """The inputs that are text."""

    targets: NDArray[Any]
    """Labels as text, or numbers."""

    clients: NDArray[Any] | None
    """The name of the client of each row, if a column has it."""

    ids: NDArray[Any] | None = None
    """What each row is called, if a column has it."""

    appended: tuple[str, int] | None = None
    """Where rows of another table were appended: its source, and the place of its first row."""

    @property
    def has_labels(self) -> bool:
        return self.targets.dtype.kind != "f"

    def __len__(self) -> int:
        return len(self.targets)

    def statistics(self, rows: Ints) -> TableStatistics:
        """The sums over some rows."""
        return TableStatistics.of(chosen_rows(self.inputs, rows), self.categorical)

    def labels(self, rows: Ints) -> tuple[str, ...]:
        """The labels that occur in some rows; none where targets are numbers."""
        return sorted_names(self.targets[rows]) if self.has_labels else ()

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The labels of all rows; none where targets are numbers."""
        return self.labels(np.arange(len(self)))

    @property
    def coded_targets(self) -> NDArray[Any]:
        """Targets as the numbers of the table's own labels, or as float32 numbers."""
        return self.encoded_targets(self.all_labels)

    def encoded_targets(self, labels: Sequence[str]) -> NDArray[Any]:
        """Targets as the numbers of these labels, or as float32 numbers.

        Raises:
            DataError: A row has another label.
        """
        if not self.has_labels:
            return self.targets.astype(np.float32)
        number = {label: place for place, label in enumerate(labels)}
        if strange := sorted(set(self.targets) - number.keys()):
            raise DataError(f"{self.source}: no train row has the label {strange[0]!r}; labels are {listed(labels)}")
        return np.array([number[label] for label in self.targets], dtype=np.int64)

    def with_kinds(self, names: Iterable[str], categorical: Container[str]) -> Table:
        """The table with these inputs only, of which some are categorical.

        Raises:
            DataError: A column is missing, or is text but must have numbers.
        """
        inputs = {}
        for name in names:
            if name not in self.inputs:
                raise DataError(f"{self.source}: has no column {name!r}; columns are {listed(self.inputs)}")
            inputs[name] = as_text(self.inputs[name]) if name in categorical else self._numbers(name)
        return replace(self, inputs=inputs, categorical=tuple(name for name in inputs if name in categorical))

    def _numbers(self, name: str) -> NDArray[np.float64]:
        try:
            return numeric_column(self.inputs, name)
        except DataError as error:
            raise DataError(f"{self.source}: {error}, but the column has numbers elsewhere") from None

    def matching(self, encoding: TableEncoding) -> Table:
        """The table with the inputs that an encoding expects.

        Raises:
            DataError: A column is missing, or is text but must have numbers.
        """
        return self.with_kinds([*encoding.numbers, *encoding.categories], encoding.categories)

    def joined(self, other: Table) -> Table:
        """The rows of this table, then those of another one, which has at least the same inputs.

        Raises:
            DataError: A column is missing there, or is text there but has numbers here.
        """
        theirs = other.with_kinds(self.inputs, self.categorical)
        inputs = {name: np.concatenate([column, theirs.inputs[name]]) for name, column in self.inputs.items()}
        targets = np.concatenate([self.targets, other.targets])
        clients = _joined_names(self.clients, other.clients, len(other))
        ids = _joined_names(self.ids, other.ids, len(other))
        return Table(self.source, inputs, self.categorical, targets, clients, ids, (other.source, len(self)))

    def sample_names(self, rows: Ints) -> dict[str, NDArray[Any]]:
        """What tells some rows apart: their numbers in their file, their ids and clients."""
        known = {"id": self.ids, "client": self.clients}
        numbers = np.array([self.place(int(row))[1] for row in rows], np.int64)
        return {"row": numbers, **{name: column[rows] for name, column in known.items() if column is not None}}

    def place(self, row: int) -> tuple[str, int]:
        """The source of a row and its number there, from 1, for messages."""
        if self.appended is None or row < self.appended[1]:
            return self.source, row + 1
        source, first = self.appended
        return source, row - first + 1


def read_table(path: Path, settings: TableSettings, task: str | None = None, prefix: str = "data.table.") -> Table:
    """Read a `.csv` or `.parquet` file; see `table_of`."""
    path = expand_home(path)
    return table_of(read_table_columns(path), settings, str(path), task, prefix)


def table_of(
    columns: Mapping[str, Column],
    settings: TableSettings,
    source: str,
    task: str | None = None,
    prefix: str = "",
    *,
    for_testing: bool = False,
) -> Table:
    """Give columns their roles.

    Args:
        columns: All columns.
        settings: The roles.
        source: The name of the file, for messages.
        task: The task, if it is known; by default it follows from the target.
        prefix: The place of the settings, for messages.
        for_testing: Whether the rows are test rows from a file of their own, which may have no column of clients. Which
            of their columns have numbers is for the train rows to say: see `Table.with_kinds`.

    Raises:
        SpecError: A setting names a column that does not exist, or a column has two roles.
        DataError: A column does not fit its role.
    """
    if settings.target is None:
        raise SpecError(f"{prefix}target: is required: the column to predict; columns are {listed(columns)}")
    roles = _roles(columns, settings, source, prefix, for_testing)
    for name, column in columns.items():
        if column.unfit and roles.get(name) != "drop":
            raise DataError(f"{source}: column {name!r} {column.unfit}; convert it, or name it in {prefix}drop")
    client, ids = (next((name for name, role in roles.items() if role == wanted), None) for wanted in ("client", "id"))
    clients = None if client is None else _clients(columns[client], client, source)
    chosen = {name: column for name, column in columns.items() if roles.get(name, "categorical") == "categorical"}
    if not chosen:
        raise DataError(f"{source}: has no columns to learn from besides {listed(sorted(roles))}")
    inputs = {
        name: _names(column, f"{source}: column {name!r}")
        if name in settings.categorical
        else (column.cells if for_testing else column.values)
        for name, column in chosen.items()
    }
    for name, values in inputs.items():
        _check_size(values, name, source)
    if not for_testing:
        _check_categories(inputs, clients, settings, source, prefix)
    return Table(
        source,
        inputs,
        tuple(name for name, column in inputs.items() if column.dtype.kind != "f"),
        _targets(columns[settings.target], settings.target, source, task),
        clients,
        None if ids is None else _names(columns[ids], f"{source}: the id column {ids!r}"),
    )


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Different names in order: by value and then by name if all are finite numbers, else by name."""
    found = sorted(set(names))
    try:
        value = {name: float(name) for name in found}
    except ValueError:
        return tuple(found)
    return tuple(sorted(found, key=value.__getitem__) if np.isfinite(list(value.values())).all() else found)


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names for a message; of very many, the first."""
    texts = list(names)
    return ", ".join(texts[:most]) + (f", … ({len(texts):,})" if len(texts) > most else "")


def _roles(
    columns: Mapping[str, Column], settings: TableSettings, source: str, prefix: str, for_testing: bool
) -> dict[str, str]:
    """Column → its role, for all columns that the settings name."""
    named = {"target": settings.target, "client": settings.client, "id": settings.id}
    wanted = [(role, name) for role, name in named.items() if name is not None]
    wanted += [("drop", name) for name in settings.drop] + [("categorical", name) for name in settings.categorical]
    roles: dict[str, str] = {}
    for role, name in wanted:
        if name not in columns and for_testing:
            if role == "target":
                raise DataError(f"{source}: has no column {name!r}; columns are {listed(columns)}")
            continue
        if name not in columns:
            raise SpecError(f"{prefix}{role}: {unknown('column', name, columns)}")
        if roles.setdefault(name, role) != role:
            raise SpecError(f"{prefix}{role}: the column {name!r} already has the role {roles[name]}")
    return roles


def _check_categories(
    inputs: Columns, clients: NDArray[Any] | None, settings: TableSettings, source: str, prefix: str
) -> None:
    """Refuse text that is hardly a category: a name, a date, or numbers that are written in another way."""
    instead = f"or name the column in {prefix}drop, or in {prefix}categorical if these are categories"
    for name, column in inputs.items():
        if column.dtype.kind == "f" or name in settings.categorical:
            continue
        if (row := _decimal_comma(column)) is not None:
            raise DataError(
                f"{_cell(source, name, column, row, clients)} has a decimal comma; write all numbers of the column "
                f"with a point, {instead}"
            )
        if (row := _mistyped_number(column)) is not None:
            raise DataError(
                f"{_cell(source, name, column, row, clients)} is not a number, but most of the column is; correct or "
                f"empty the cell, {instead}"
            )
        if clients is not None and (found := _text_of_one_client(column, clients)) is not None:
            row, other = found
            raise DataError(
                f"{_cell(source, name, column, row, clients)} is not a number, but client {other!r} has only numbers "
                f"in the column; write it alike at all clients, {instead}"
            )
        texts = sorted(set(column) - {""})
        dates = [text for text in texts if _DATE.fullmatch(text)]
        if 2 * len(dates) > len(texts):
            raise DataError(
                f"{source}: column {name!r} has dates, such as {dates[0]!r}; make them numbers, such as an age or a "
                f"year, {instead}"
            )
        if len(texts) > MOST_CATEGORIES:
            example = next((text for text in texts if not is_number(text)), texts[0])
            naming = "" if prefix == NODE_OPTION else f", or in {prefix}id if they name the rows"  # nodes have no ids
            raise DataError(
                f"{source}: column {name!r} has {len(texts):,} different texts, such as {example[:40]!r}; correct "
                f"them, {instead}{naming}"
            )


def _cell(source: str, name: str, column: NDArray[Any], row: int, clients: NDArray[Any] | None) -> str:
    """A cell with its place, for messages."""
    owner = "" if clients is None else f" (client {clients[row]!r})"
    return f"{source}: column {name!r}, row {row + 1}{owner}: {column[row][:40]!r}"


def _decimal_comma(column: NDArray[Any]) -> int | None:
    """The first row with a decimal comma in a column of text in which all known cells are numbers otherwise."""
    commas = [row for row, cell in enumerate(column) if _DECIMAL_COMMA.fullmatch(cell)]
    others = (cell for cell in column if cell and not _DECIMAL_COMMA.fullmatch(cell))
    return commas[0] if commas and all(map(is_number, others)) else None


def _text_of_one_client(column: NDArray[Any], clients: NDArray[Any]) -> tuple[int, str] | None:
    """The first row with text in a column that has only numbers at some client, and the name of that client."""
    known = np.flatnonzero(~is_missing(column))
    texts = [int(row) for row in known if not is_number(column[row])]
    of_numbers = sorted_names(set(clients[known]) - set(clients[texts]))
    return (texts[0], of_numbers[0]) if texts and of_numbers else None


def _mistyped_number(column: NDArray[Any]) -> int | None:
    """The first row with text in a column of text in which most known cells are numbers."""
    known = np.flatnonzero(~is_missing(column))
    texts = [int(row) for row in known if not is_number(column[row])]
    return texts[0] if 0 < 2 * len(texts) < len(known) else None


def _targets(target: Column, name: str, source: str, task: str | None) -> NDArray[Any]:
    """Labels as text, or numbers."""
    column = target.values
    missing = is_missing(column)
    if missing.any():
        raise DataError(
            f"{source}: row {int(missing.argmax()) + 1} has no value in the target column {name!r} "
            f"({int(missing.sum()):,} of {len(column):,} rows); remove these rows or fill them in"
        )
    if task is not None and ":" not in task and task not in ONE_TARGET:
        raise SpecError(f"task: a table has one target per row, which fits {', '.join(ONE_TARGET)}, not {task!r}")
    if column.dtype.kind != "f":
        if task not in WITH_LABELS and (row := _decimal_comma(column)) is not None:
            raise DataError(
                f"{_cell(source, name, column, row, None)} has a decimal comma; write all targets with a point, or "
                "set the task to classification if they are labels"
            )
        if task is None and (row := _mistyped_number(column)) is not None:
            raise DataError(
                f"{source}: column {name!r}, row {row + 1}: {column[row][:40]!r} is not a number, but most targets "
                "are; correct it, or set the task to classification if it is a label"
            )
        if task == "regression":
            raise DataError(
                f"{source}: the target column {name!r} has text, such as {column[0][:40]!r}; the task regression "
                "needs numbers"
            )
        return column
    _check_size(column, name, source)
    fractions = column != np.floor(column)
    if task == "regression" or (task not in WITH_LABELS and fractions.any()):
        return column
    if fractions.any():
        raise DataError(
            f"{source}: the target column {name!r} has numbers such as {column[fractions][0]:g}, not labels; the task "
            f"{task} needs whole numbers or text"
        )
    if task is None and (different := len(np.unique(column))) > MOST_LABELS:
        raise DataError(
            f"{source}: the target column {name!r} has {different:,} different whole numbers; set the task to "
            "classification or regression"
        )
    return _names(target, f"{source}: the target column {name!r}")


def _check_size(column: NDArray[Any], name: str, source: str) -> None:
    if column.dtype.kind == "f":
        try:
            check_size(name, column)
        except DataError as error:
            raise DataError(f"{source}: {error}") from None


def _clients(column: Column, name: str, source: str) -> NDArray[Any]:
    missing = is_missing(column.values)
    if missing.any():
        raise DataError(f"{source}: row {int(missing.argmax()) + 1} has no value in the client column {name!r}")
    return _names(column, f"{source}: the client column {name!r}")


def _joined_names(names: NDArray[Any] | None, others: NDArray[Any] | None, count: int) -> NDArray[Any] | None:
    """The names of rows, if they have any, then those of `count` other rows: where unknown, one that nobody has."""
    others = np.full(count, "", dtype=object) if others is None else others
    return None if names is None else np.concatenate([names, others])


def _names(column: Column, what: str) -> NDArray[Any]:
    """The values of a column as names."""
    if column.cells.dtype.kind == "f" and (np.abs(column.cells) >= 2**53).any():
        raise DataError(f"{what} has numbers too large to tell apart; use text")
    return column.texts
