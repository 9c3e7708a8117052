"""A node's own table. Its rows become samples once the server has said how all nodes encode them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation, build_federation
from fedrelay.data.held_out_rows import held_out_rows
from fedrelay.data.node_samples import check_hold_out
from fedrelay.data.table import NODE_OPTION, ONE_TARGET, Ints, Table, listed, read_table
from fedrelay.data.table_encoding import TableStatistics
from fedrelay.data.table_federation import SharedEncoding, default_task, encode_rows
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import TableSettings

MIN_ROWS = 10
"""Sums of fewer values say too much about each of them, unless the owner decides otherwise."""


@dataclass(frozen=True)
class NodeTable:
    """The rows of one owner, some of them held out for evaluation."""

    target: str
    table: Table
    train: Ints
    test: Ints
    task: str | None = None
    """What the target is for, if the owner says so."""

    @classmethod
    def read(
        cls,
        path: Path,
        settings: TableSettings,
        *,
        hold_out: float = 0.0,
        task: str | None = None,
        min_rows: int = MIN_ROWS,
    ) -> NodeTable:
        """Read a `.csv` or `.parquet` file.

        Args:
            path: The file.
            settings: The roles of its columns.
            hold_out: Share of the rows that is kept to evaluate models.
            task: What the target is for; by default it follows from the labels of all nodes.
            min_rows: Refuse to share sums of fewer values.

        Raises:
            DataError: The file or a column does not fit.
            SpecError: An option names an unknown column or task.
        """
        check_hold_out(hold_out)
        if task is not None and task not in ONE_TARGET:
            raise SpecError(f"--task: must be one of {', '.join(ONE_TARGET)}, got {task!r}")
        table = read_table(path, settings, task, prefix=NODE_OPTION)
        assert settings.target is not None
        train, test = held_out_rows(len(table), hold_out, labels=table.coded_targets)
        found = cls(settings.target, table, train, test, task)
        _check_sums(found.statistics, min_rows, table.source)
        if 0 < len(test) < min_rows:
            raise DataError(
                f"{path}: --holdout keeps {len(test):,} rows; sums over them, which the server receives for any model, "
                f"would reveal too much about each. Keep at least {min_rows:,}, or none, or lower --min-rows"
            )
        return found

    @property
    def statistics(self) -> TableStatistics:
        """The sums of the rows that the node trains on."""
        return self.table.statistics(self.train)

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels of this node, also those of held-out rows; none where targets are numbers."""
        return self.table.all_labels

    def encoded_by_itself(self) -> ArrayFederation:
        """The rows as this node would encode them by itself: enough to count samples and to see data change."""
        encoding = self.statistics.encoding()
        table = self.table.matching(encoding)
        return self._federation(table, encode_rows(encoding, table), self.labels)

    def encoded(self, shared: SharedEncoding) -> ArrayFederation:
        """The rows as all nodes encode them, as a federation with one client.

        Numbers that are too large for float32 become its largest: the server chooses the encoding, and an error would
        tell it how a cell compares with a number of its choice.

        Raises:
            DataError: The encoding does not fit the columns of this table.
        """
        table = self.table.matching(shared.encoding)
        encoding = shared.encoding.with_numbers_of(self.statistics) if shared.scaled_per_client else shared.encoding
        with np.errstate(all="ignore"):
            x = np.nan_to_num(encoding.encode(table.inputs))
        return self._federation(table, x, shared.labels)

    def _federation(self, table: Table, x: NDArray[np.float32], labels: tuple[str, ...]) -> ArrayFederation:
        y = table.encoded_targets(labels)
        dataset = Dataset(
            name=self.table.source,
            kind="tabular",
            x_train=x[self.train],
            y_train=y[self.train],
            x_test=x[self.test],
            y_test=y[self.test],
            classes=len(labels),
            client_train=np.zeros(len(self.train), np.int64),
            task=self.task or default_task(labels),
        )
        return build_federation(dataset, partition="natural")


def _check_sums(statistics: TableStatistics, least: int, source: str) -> None:
    """Refuse sums of so few values that they point at single rows."""
    if statistics.rows < least:
        raise DataError(
            f"{source}: has {statistics.rows:,} rows to train on; their sums, which the server receives, would reveal "
            f"too much about each. Use at least {least:,}, or lower --min-rows"
        )
    if sparse := {name: sums.known for name, sums in statistics.numbers.items() if 0 < sums.known < least}:
        columns = listed(f"{name!r} ({known:,})" for name, known in sparse.items())
        raise DataError(
            f"{source}: has fewer than {least:,} known numbers in rows to train on: {columns}. Their sums, which the "
            "server receives, would reveal too much about each: name these columns in --drop, at all nodes, or lower "
            f"--min-rows to {min(sparse.values()):,} if this may be known"
        )
