"""Accuracy and macro-averaged precision, recall and F1, all from one confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrelay.data.dataset import IGNORED_LABEL


@dataclass(frozen=True)
class Scores:
    """Scores of a classifier. Precision, recall and F1 are macro averages: every class has the same weight."""

    accuracy: float
    precision: float
    recall: float
    f1: float


def confusion(y_true: ArrayLike, y_pred: ArrayLike, classes: int) -> NDArray[np.int64]:
    """The confusion matrix: true classes are rows, predicted classes columns. Ignored labels do not count.

    Raises:
        ValueError: Shapes differ, labels are not integers, or a label is outside 0 … classes - 1.
    """
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    if true.shape != predicted.shape:
        raise ValueError(f"labels of shape {true.shape} and predictions of shape {predicted.shape} do not match")
    for labels in (true, predicted):
        if labels.size and not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"labels must be whole numbers, got {labels.dtype}")
    counted = true != IGNORED_LABEL
    pairs = np.stack([true[counted], predicted[counted]]).astype(np.int64)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= classes):
        raise ValueError(f"labels must be in 0 … {classes - 1}, got {pairs.min()} … {pairs.max()}")
    return np.bincount(pairs[0] * classes + pairs[1], minlength=classes**2).reshape(classes, classes)


def scores(confusion: NDArray[np.int64]) -> Scores:
    """The scores of a confusion matrix. A class without predictions or samples adds 0 to the macro averages."""
    return scores_from_counts(confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1))


def scores_from_counts(correct: NDArray[np.int64], predicted: NDArray[np.int64], actual: NDArray[np.int64]) -> Scores:
    """The scores from counts per class, for tasks with too many classes for a confusion matrix."""
    return Scores(
        accuracy=accuracy_from_counts(correct, actual),
        precision=_mean_ratio(correct, predicted),
        recall=_mean_ratio(correct, actual),
        f1=_mean_ratio(2 * correct, actual + predicted),
    )


def accuracy_from_counts(correct: NDArray[np.int64], actual: NDArray[np.int64]) -> float:
    """The accuracy from counts per class."""
    total = int(actual.sum())
    if total == 0:
        raise ValueError("cannot compute scores without samples")
    return int(correct.sum()) / total


def accuracy_on_classes(classes: Sequence[int], correct: NDArray[np.int64], actual: NDArray[np.int64]) -> float | None:
    """The accuracy on the samples of some classes; None if they have no samples."""
    chosen = list(classes)
    total = int(actual[chosen].sum())
    return float(correct[chosen].sum() / total) if total else None


def _mean_ratio(parts: NDArray[np.int64], wholes: NDArray[np.int64]) -> float:
    # If the whole is 0, the part is 0 too, so any positive divisor gives the ratio 0.
    return float(np.mean(parts / np.maximum(wholes, 1)))
