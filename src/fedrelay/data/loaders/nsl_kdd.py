"""NSL-KDD: network connections, normal or one of many attacks. Comma-separated files without header.

The one-hot encoding of the three categorical columns and the scaling of the 38 numeric ones are fitted on the train
rows; a category that occurs only in test rows becomes zeros. Byte counts and durations span nine orders of magnitude,
so every numeric column is `log(1 + x)`, then standardised. A constant column becomes zeros.

`nsl-kdd` has the 23 labels of the train rows, sorted by name. Test rows of the 17 attacks that are not in the train
rows (3,750 of 22,544) are left out. `nsl-kdd-binary` has two classes, normal (0) and attack (1), and keeps every row.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.file_checks import damaged, existing, read_text
from fedrelay.data.search_folders import plain_or_gzip

TRAIN, TEST = "KDDTrain+.txt", "KDDTest+.txt"
CATEGORICAL = (1, 2, 3)
NUMERIC = tuple(column for column in range(41) if column not in CATEGORICAL)
LABEL = 41
COLUMNS = 43

_log = logging.getLogger(__name__)


def recognise(location: Path) -> Path | None:
    """A folder with both files, plain or gzip."""
    return location if all(plain_or_gzip(location, name) for name in (TRAIN, TEST)) else None


def load(folder: Path) -> Dataset:
    """The data set with one class per label of the train rows."""
    train, test = (_Rows(existing(folder, name)) for name in (TRAIN, TEST))
    names = np.unique(train.labels)
    known = np.isin(test.labels, names)
    if not known.any():
        raise damaged(folder / TEST, "has no row with a label of the train rows")
    if unknown := int((~known).sum()):
        _log.info("nsl-kdd: left out %d test rows whose labels are not in the train rows", unknown)
    y_train, y_test = (np.searchsorted(names, labels) for labels in (train.labels, test.labels[known]))
    x_train, x_test = _features(train, test)
    return Dataset("nsl-kdd", "tabular", x_train, y_train, x_test[known], y_test, len(names))


def load_binary(folder: Path) -> Dataset:
    """The data set with two classes: normal (0) and attack (1)."""
    train, test = (_Rows(existing(folder, name)) for name in (TRAIN, TEST))
    y_train, y_test = ((part.labels != "normal").astype(np.int64) for part in (train, test))
    x_train, x_test = _features(train, test)
    return Dataset("nsl-kdd-binary", "tabular", x_train, y_train, x_test, y_test, classes=2)


class _Rows:
    """The numeric columns, categorical columns and labels of one file."""

    def __init__(self, path: Path) -> None:
        lines = read_text(path).splitlines()
        if not lines:
            raise damaged(path, "has no rows")
        for number, line in enumerate(lines, start=1):
            if (columns := line.count(",") + 1) != COLUMNS:
                raise damaged(path, f"line {number} has {columns} columns, not {COLUMNS}")
        try:
            self.numbers = np.loadtxt(lines, np.float64, comments=None, delimiter=",", usecols=NUMERIC, ndmin=2)
        except ValueError as error:
            raise damaged(path, str(error)) from error
        words = np.loadtxt(lines, str, comments=None, delimiter=",", usecols=(*CATEGORICAL, LABEL), ndmin=2)
        self.categories, self.labels = words[:, :-1], words[:, -1]
        if not (np.isfinite(self.numbers).all() and self.numbers.min() >= 0):
            raise damaged(path, "has a numeric value that is negative or not finite")


def _features(train: _Rows, test: _Rows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The numeric columns, then the one-hot encoding of each categorical column."""
    logs = np.log1p(train.numbers)
    mean, deviation = logs.mean(axis=0), logs.std(axis=0)
    constant = np.ptp(logs, axis=0) == 0
    scale = np.where(constant, 0, 1 / np.where(constant, 1, deviation))
    vocabularies = [np.unique(column) for column in train.categories.T]

    def encode(rows: _Rows) -> NDArray[np.float32]:
        numbers = (np.log1p(rows.numbers) - mean) * scale
        one_hot = [column[:, None] == words for column, words in zip(rows.categories.T, vocabularies, strict=True)]
        return np.hstack([numbers, *one_hot]).astype(np.float32)

    return encode(train), encode(test)
