"""The predictions of a model for every test sample: a table, and arrays for what no table can hold."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.sample_names import sample_names
from fedrelay.data.table_federation import TableFederation
from fedrelay.errors import SpecError
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.local.evaluation import chunk_outputs, chunks_of
from fedrelay.models.flat_layout import FlatModule
from fedrelay.tasks.sample_columns import SampleColumns
from fedrelay.user_code import errors_in_own_part


@dataclass(frozen=True)
class Predictions:
    """Predictions for single test samples."""

    columns: SampleColumns
    """The columns of the table: what tells samples apart, then what the task makes of targets and outputs."""

    arrays: SampleColumns
    """More of the same samples, such as masks of images; may be empty."""

    @property
    def csv(self) -> bytes:
        """The table as the content of a `.csv` file; unknown values are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        cells = [["" if value is None else str(value) for value in column] for column in self.columns.values()]
        writer.writerows(zip(*cells, strict=True))
        return text.getvalue().encode()

    @property
    def npz(self) -> bytes:
        """The arrays as the content of an `.npz` file."""
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **self.arrays)
        return content.getvalue()


def predictions_of(prepared: PreparedExperiment) -> Predictions:
    """The predictions of the module for all test samples, computed as evaluation does.

    Raises:
        SpecError: There are no test samples here.
    """
    federation, task, train = prepared.federation, prepared.task, prepared.experiment.train
    test = federation.test
    if not test.size:
        raise SpecError("predictions: there are no test samples here")
    flat_module = FlatModule(prepared.module, prepared.layout, train.device, train.precision)
    weights = prepared.layout.flatten(prepared.module)
    columns, arrays = [], []
    for chunk in chunks_of(test):
        for found, targets in chunk_outputs(flat_module, weights, test, chunk):
            outputs = task.outputs_for_loss(found, targets)
            with errors_in_own_part(task, "sample_columns"):
                columns.append(task.sample_columns(outputs, targets))
                arrays.append(task.sample_arrays(outputs, targets))
    table, names = find_wrapper(federation, TableFederation), sample_names(federation)
    found_columns = _joined(columns)
    if task.uses_classes and table is not None:
        found_columns = _with_labels(found_columns, table.shared.labels)
    joined = _joined(arrays)
    return Predictions({**names, **found_columns}, {"sample": names["sample"], **joined} if joined else {})


def _joined(parts: Sequence[SampleColumns]) -> SampleColumns:
    """Columns of some samples after those of others."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _with_labels(columns: SampleColumns, labels: Sequence[str]) -> SampleColumns:
    """The columns with the names of classes, unless these are their numbers."""
    if list(labels) == [str(number) for number in range(len(labels))]:
        return columns
    names: NDArray[Any] = np.array(labels, dtype=object)
    named = {f"{name}_label": names[columns[name]] for name in ("target", "prediction") if name in columns}
    return {**named, **columns}
