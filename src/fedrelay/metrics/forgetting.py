"""Forgetting along a chain: how much accuracy a model loses on the clients that it visited before.

All numbers come from one matrix: `accuracy[j, i]` is the accuracy on the data of the i-th client after the j-th hop,
for i ≤ j. Entries above the diagonal are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def backward_transfer(accuracy: ArrayLike) -> float | None:
    """BWT: the mean of (accuracy at the end − accuracy right after training there) over all clients but the last.

    Negative values mean forgetting. None for a chain of one hop.
    """
    matrix = _square(accuracy)
    if len(matrix) < 2:
        return None
    return float(np.mean(matrix[-1, :-1] - matrix.diagonal()[:-1]))


def forgetting(accuracy: ArrayLike) -> NDArray[np.float64] | None:
    """For each client but the last: the best accuracy before the last hop minus the accuracy at the end.

    Negative where the last hop helped. None for a chain of one hop.
    """
    matrix = _square(accuracy)
    if len(matrix) < 2:
        return None
    known = np.where(np.tri(len(matrix), dtype=bool), matrix, -np.inf)
    worse: NDArray[np.float64] = known[:-1, :-1].max(axis=0) - matrix[-1, :-1]
    return worse


def start_point_spread(accuracies: Sequence[float]) -> float | None:
    """The population standard deviation of the final accuracy over chains that start at different clients.

    None for a single chain.
    """
    return float(np.std(accuracies)) if len(accuracies) > 1 else None


def _square(accuracy: ArrayLike) -> NDArray[np.float64]:
    matrix = np.asarray(accuracy, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"accuracy must be a square matrix with one row per hop, got shape {matrix.shape}")
    if not np.isfinite(matrix[np.tril_indices(len(matrix))]).all():
        raise ValueError("accuracy has a non-finite value on or below the diagonal")
    return matrix
