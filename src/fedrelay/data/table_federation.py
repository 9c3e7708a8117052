"""Federations of the rows of a table. Clients agree on an encoding by sharing sums, before the first round.

Rule: every client sends the sums of its train rows (`TableStatistics`) and the labels that it has. The server adds them
up, and all clients encode their rows with the result (`TableEncoding`). With `scaling: client`, categories and marks
are the shared ones, but the numbers of a client's train and test rows are standardised by its own means and deviations,
those of its train rows. Test rows of no known client, and columns of which a client knows no value, are
standardised by the shared means and deviations; columns that are constant at a client, by its mean and the shared
deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation, Federation, build_federation, digest
from fedrelay.data.federation_wrapper import FederationWrapper, find_wrapper
from fedrelay.data.held_out_rows import held_out_rows
from fedrelay.data.table import Ints, Table, listed, read_table, sorted_names, table_of
from fedrelay.data.table_column_reader import chosen_rows, frame_columns, read_table_columns
from fedrelay.data.table_encoding import NumberEncoding, TableEncoding, TableStatistics, text_bytes
from fedrelay.errors import DataError
from fedrelay.experiment.spec import TableSettings, validate
from fedrelay.files import expand_home

Distribute = Callable[[Dataset], ArrayFederation]
"""Takes rows and divides them among clients."""


@dataclass(frozen=True)
class SharedEncoding:
    """What clients agreed on, and what it cost."""

    encoding: TableEncoding
    labels: tuple[str, ...]
    """The label of each class; empty where targets are numbers."""

    sent: tuple[int, ...]
    """Bytes that each client sent."""

    scaled_per_client: bool
    """Whether each client standardises numbers by its own means and deviations."""

    @classmethod
    def of(
        cls,
        statistics: Sequence[TableStatistics],
        own_labels: Sequence[Sequence[str]],
        labels: tuple[str, ...],
        settings: TableSettings,
    ) -> SharedEncoding:
        """What follows from the sums of all clients, whose own labels are part of all labels.

        Raises:
            DataError: No client has a value in some column.
        """
        pooled: TableStatistics = reduce(add, statistics)
        if empty := pooled.empty_columns:
            raise DataError(
                f"no train row of any client has a value in {listed(map(repr, empty))}; name such columns in drop "
                "(data.table.drop; nodes: --drop)"
            )
        encoding = pooled.encoding(scaled=settings.scaling != "none", mark_missing=settings.mark_missing)
        own = zip(statistics, own_labels, strict=True)
        sent = tuple(sums.bytes + text_bytes(names) for sums, names in own)
        return cls(encoding, labels, sent, settings.scaling == "client")

    @property
    def received(self) -> int:
        """Bytes that each client received."""
        return self.encoding.bytes + text_bytes(self.labels)


@dataclass(frozen=True)
class OwnNumbers:
    """How one client standardises its numbers, with `scaling: client`."""

    names: tuple[str, ...]
    """The client of its rows, as the table names it; of divided tables, all names that occur in its rows."""

    numbers: Mapping[str, NumberEncoding]


@dataclass(frozen=True, repr=False)
class TableFederation(FederationWrapper):
    """Clients with encoded rows of a table."""

    shared: SharedEncoding
    own: tuple[OwnNumbers, ...] = ()
    """Of each client, with `scaling: client`; none where rows are at nodes."""

    def fingerprint(self) -> str:
        return digest("table", self.shared, self.inner.fingerprint())


def shared_encoding(federation: Federation) -> SharedEncoding | None:
    """What clients with tables agreed on; None for other data."""
    table = find_wrapper(federation, TableFederation)
    return None if table is None else table.shared


def open_table(path: Path, settings: TableSettings, task: str | None, distribute: Distribute) -> TableFederation:
    """The federation of a `.csv` or `.parquet` file."""
    table = read_table(path, settings, task)
    test = None
    if isinstance(settings.test, Path):
        where = expand_home(settings.test)
        test = _test_table(read_table_columns(where), table, settings, str(where), "data.table.")
    return _federation(table, test, settings, path.stem, task, distribute)


def federate_table(
    table: Any,
    *,
    target: str,
    client: str | None = None,
    id: str | None = None,
    test: Any = 0.2,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    scaling: Literal["shared", "client", "none"] = "shared",
    mark_missing: bool = True,
    task: Literal["classification", "binary", "regression"] | None = None,
    clients: int | None = None,
    partition: str | None = None,
    alpha: float | None = None,
    seed: int = 1,
) -> Federation:
    """Build a federation from a table with numbers, text and missing values.

    Numbers are standardised and text becomes one column of 0 and 1 for each category. The means, deviations and
    categories come from sums over the train rows that clients share before the first round; the ledger counts them.

    Args:
        table: A pandas DataFrame, a mapping column → values, or the path of a `.csv` or `.parquet` file.
        target: The column to predict. Text and whole numbers are labels, other numbers are for regression.
        client: The column with the client of each row. By default rows are divided by `partition`.
        id: The column with the name of each row, such as the number of a patient; exported predictions have it.
        test: Test rows: a share of the rows of every client and label, always the same; or a table of their own.
        categorical: Columns of numbers that are categories.
        drop: Columns to leave out.
        scaling: Means and deviations that numbers are standardised with: of all clients' train rows (shared), of each
            client's own (client), or none. Test rows are scaled as their client's, if it is known.
        mark_missing: Add a column of 0 and 1 for each column with missing values. A missing number becomes the mean, a
            missing category the most frequent one.
        task: The task that the data are for, if it does not follow from the target.
        clients: The number of clients; default 100, or all clients of the column `client`.
        partition: How rows are divided; the default is natural with `client`, else dirichlet (iid for numbers).
        alpha: The concentration of Dirichlet partitions; default 0.5.
        seed: Seed of the partition.

    Returns:
        A federation, to pass as `data=` to `fr.run` and `fr.compare`.

    Raises:
        DataError: The table or a column does not fit.
        SpecError: A setting is unknown, or names an unknown column.

    Example:
        >>> import fedrelay as fr
        >>> rows = {
        ...     "age": [40, 50, 60, None, 30, 70, 45, 55, 65, 35],
        ...     "smoker": ["no", "yes", "no", "no", "yes", "yes", "no", "no", "yes", "no"],
        ...     "hospital": ["north"] * 5 + ["south"] * 5,
        ...     "ill": [0, 1, 0, 1, 0, 1, 0, 1, 1, 0],
        ... }
        >>> data = fr.federate_table(rows, target="ill", client="hospital", test=0.4)
        >>> data.client_count, data.sample_shape, data.task
        (2, (4,), 'binary')
    """
    options: dict[str, Any] = {"target": target, "client": client, "id": id, "categorical": categorical, "drop": drop}
    share = {"test": test} if isinstance(test, float) else {}
    options |= {"scaling": scaling, "mark_missing": mark_missing, **share}
    settings = validate(TableSettings, options)
    rows, source = _own_columns(table)
    train = table_of(rows, settings, source, task)
    tested = None
    if not share:
        test_rows, test_source = _own_columns(test)
        tested = _test_table(
            test_rows, train, settings, f"test {test_source}" if test_source == "table" else test_source
        )
    distribute = partial(build_federation, clients=clients, partition=partition, alpha=alpha, seed=seed)
    name = Path(source).stem if isinstance(table, str | Path) else "own data"
    return _federation(train, tested, settings, name, task, distribute)


def _own_columns(table: Any) -> tuple[Any, str]:
    """The columns of a path, a data frame or a mapping, and its name for messages."""
    if isinstance(table, str | Path):
        path = expand_home(Path(table))
        return read_table_columns(path), str(path)
    return frame_columns(table), "table"


def _test_table(columns: Any, train: Table, settings: TableSettings, source: str, prefix: str = "") -> Table:
    """The test rows of a table of their own, with targets of the same kind as the train rows."""
    task = "classification" if train.has_labels else "regression"
    return table_of(columns, settings, source, task, prefix, for_testing=True)


def _federation(
    table: Table,
    test_table: Table | None,
    settings: TableSettings,
    name: str,
    task: str | None,
    distribute: Distribute,
) -> TableFederation:
    if test_table is None:
        train, test = _split(table, settings)
    else:
        train, test = np.arange(len(table)), np.arange(len(table), len(table) + len(test_table))
        _check_labels(table, test_table)
        table = table.joined(test_table)
    labels = table.labels(train)
    if len(labels) == 1:
        raise DataError(f"{table.source}: all train rows have the same label in the target column: {labels[0]!r}")
    y = table.encoded_targets(labels)
    names = None if table.clients is None else sorted_names(table.clients[train])
    number = {name: place for place, name in enumerate(names or ())}
    # Rows are divided by their numbers first, because the encoding depends on who has which rows.
    rows = Dataset(
        name=name,
        kind="tabular",
        x_train=train[:, np.newaxis],
        y_train=y[train],
        x_test=test[:, np.newaxis],
        y_test=y[test],
        classes=len(labels),
        client_train=None if table.clients is None else np.array([number[each] for each in table.clients[train]]),
        client_names=names or (),
        clients_are_given=table.clients is not None,
        task=task or default_task(labels),
        test_sample_names=table.sample_names(test),
    )
    return _encoded(distribute(rows), table, settings, labels)


def default_task(labels: Sequence[str]) -> str:
    """The task that labels are for; without any, targets are numbers."""
    return {0: "regression", 2: "binary"}.get(len(labels), "classification")


def _check_labels(table: Table, test: Table) -> None:
    """Refuse test rows whose label no train row has."""
    if table.has_labels:
        test.encoded_targets(table.all_labels)


def _split(table: Table, settings: TableSettings) -> tuple[Ints, Ints]:
    """The numbers of the train and test rows, always the same: a client's test rows are those its node would hold out.

    Every client and every label keeps at least one train row.
    """
    assert isinstance(settings.test, float)
    targets = table.coded_targets
    tested = np.zeros(len(table), bool)
    owner = np.zeros(len(table), np.int64) if table.clients is None else _codes(table.clients)
    by_owner = np.argsort(owner, kind="stable")
    for rows in np.split(by_owner, np.bincount(owner).cumsum()[:-1]):
        tested[rows[held_out_rows(len(rows), settings.test, labels=targets[rows])[1]]] = True
    if table.has_labels:
        tested[[int((targets == lost).argmax()) for lost in np.setdiff1d(targets, targets[~tested])]] = False
    if not tested.any():
        raise DataError(
            f"{table.source}: a share of {settings.test:g} of {len(table):,} rows leaves no test rows, because every "
            "client and label keeps a train row; raise the share"
        )
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def _codes(names: Any) -> Ints:
    return np.unique(names.astype(str), return_inverse=True)[1]


def _encoded(
    federation: ArrayFederation, table: Table, settings: TableSettings, labels: tuple[str, ...]
) -> TableFederation:
    """Replace the numbers of rows by encoded rows."""
    data = federation.dataset
    train, test = data.x_train[:, 0].astype(np.int64), data.x_test[:, 0].astype(np.int64)
    members = [train[federation.client_indices.of(client)] for client in range(federation.client_count)]
    statistics = [table.statistics(rows) for rows in members]
    shared = SharedEncoding.of(statistics, [table.labels(rows) for rows in members], labels, settings)
    x = encode_rows(shared.encoding, table)
    own: list[OwnNumbers] = []
    if shared.scaled_per_client:
        for rows, sums in zip(_with_test_rows(members, test, table), statistics, strict=True):
            encoding = shared.encoding.with_numbers_of(sums)
            x[rows] = encoding.encode(chosen_rows(table.inputs, rows))
            names = () if table.clients is None else sorted_names(table.clients[rows])
            own.append(OwnNumbers(names, encoding.numbers))
    encoded = replace(data, x_train=x[train], x_test=x[test])
    return TableFederation(replace(federation, dataset=encoded), shared, tuple(own))


def encode_rows(encoding: TableEncoding, table: Table) -> Any:
    """All rows as model inputs.

    Raises:
        DataError: A number does not fit into float32.
    """
    with np.errstate(over="ignore"):
        x = encoding.encode(table.inputs)
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        source, number = table.place(int(row))
        name = encoding.feature_names[column]
        raise DataError(f"{source}: column {name!r}, row {number}: scaled, the number is too large for float32")
    return x


def _with_test_rows(members: Sequence[Ints], test: Ints, table: Table) -> list[Ints]:
    """The train rows of every client and the test rows that are known to be its own.

    Clients are known by name where each client of the federation has the rows of one name, and no other client has any.
    """
    if table.clients is None:
        return list(members)
    names = [set(table.clients[rows]) for rows in members]
    if any(len(each) > 1 for each in names) or sum(map(len, names)) > len(set().union(*names)):
        return list(members)
    own = table.clients[test]
    return [
        np.concatenate([rows, test[np.isin(own, list(each))]]) if each else rows
        for rows, each in zip(members, names, strict=True)
    ]
