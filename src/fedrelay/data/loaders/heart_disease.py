"""Heart disease: patients of four hospitals, healthy (0) or with coronary heart disease (1). Always available.

The four hospitals are the natural clients. They have no test part: a fifth of the patients of each hospital and
diagnosis, always the same, is used for testing. A cholesterol or blood pressure of 0 was not measured and is taken as
missing. Categories, means and deviations are those of all train patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.csv_table import read_columns
from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.file_checks import damaged
from fedrelay.data.loaders.stratified_split import stratified_split
from fedrelay.data.table_encoding import EMPTY_CELLS, Cells, TableStatistics, numeric_column
from fedrelay.errors import DataError

Ints = NDArray[np.int64]

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FILES = tuple(f"{name}.csv" for name in HOSPITALS)
NUMBERS = ("age", "trestbps", "chol", "thalach", "oldpeak", "ca")
CATEGORICAL = ("sex", "cp", "fbs", "restecg", "exang", "slope", "thal")
NEVER_ZERO = ("trestbps", "chol")
DIAGNOSIS = "num"


def package_folder() -> list[Path]:
    """The folder of the files that come with FedRelay."""
    return [Path(__file__).parents[1] / "files" / "heart-disease"]


def recognise(location: Path) -> Path | None:
    """A folder with the files of all four hospitals."""
    return location if all((location / name).is_file() for name in FILES) else None


def load(folder: Path) -> Dataset:
    """The patients of all hospitals, with hospitals as natural clients."""
    hospitals = [_read(folder / name, number) for number, name in enumerate(FILES)]
    statistics = reduce(add, (TableStatistics.of(each.rows_of(each.train), CATEGORICAL) for each in hospitals))
    encoding = statistics.encoding()
    x = [encoding.encode(each.attributes) for each in hospitals]
    return Dataset(
        name="heart-disease",
        kind="tabular",
        x_train=np.concatenate([part[each.train] for part, each in zip(x, hospitals, strict=True)]),
        y_train=np.concatenate([each.diagnosis[each.train] for each in hospitals]),
        x_test=np.concatenate([part[each.test] for part, each in zip(x, hospitals, strict=True)]),
        y_test=np.concatenate([each.diagnosis[each.test] for each in hospitals]),
        classes=2,
        client_train=np.repeat(np.arange(len(hospitals)), [len(each.train) for each in hospitals]),
        client_names=HOSPITALS,
        task="binary",
        test_sample_names={"client": np.repeat(HOSPITALS, [len(each.test) for each in hospitals])},
    )


@dataclass(frozen=True)
class _Hospital:
    """The patients of one hospital."""

    attributes: Cells
    diagnosis: Ints
    train: Ints
    test: Ints

    def rows_of(self, rows: Ints) -> Cells:
        return {name: [cells[row] for row in rows] for name, cells in self.attributes.items()}


def _read(path: Path, hospital: int) -> _Hospital:
    """Read a hospital's file and split its patients."""
    columns = read_columns(path)
    if absent := [name for name in (*NUMBERS, *CATEGORICAL, DIAGNOSIS) if name not in columns]:
        raise damaged(path, f"has no column {absent[0]!r}")
    try:
        numbers = {name: numeric_column(columns, name) for name in (*NUMBERS, DIAGNOSIS)}
    except DataError as error:
        raise damaged(path, str(error)) from None
    if np.isnan(numbers[DIAGNOSIS]).any():
        raise damaged(path, f"row {int(np.isnan(numbers[DIAGNOSIS]).argmax()) + 1} has no diagnosis")
    diagnosis = (numbers[DIAGNOSIS] > 0).astype(np.int64)
    attributes = {name: [_plain(cell, name) for cell in columns[name]] for name in (*NUMBERS, *CATEGORICAL)}
    return _Hospital(attributes, diagnosis, *stratified_split(2 * hospital + diagnosis, "heart-disease-split"))


def _plain(cell: str, column: str) -> str:
    """A cell as all files write it: 1, not 1.0, and nothing where a value cannot be true."""
    if cell in EMPTY_CELLS:
        return ""
    try:
        value = float(cell)
    except ValueError:
        return cell  # a category
    return "" if column in NEVER_ZERO and value == 0 else f"{value:.15g}"
