"""Forgetting along a chain: what a model that travels loses of the clients it has left behind.

All is read off one matrix: `accuracy[j, i]` is the accuracy on the data of the i-th client after the j-th hop, for
i ≤ j; what stands above the diagonal is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def backward_transfer(accuracy: ArrayLike) -> float | None:
    """BWT: the mean over all clients but the last of (accuracy at the end − accuracy when just trained there).

    Below 0 means forgetting. None for a chain of one hop.
    """
    matrix = _square(accuracy)
    if len(matrix) < 2:
        return None
    return float(np.mean(matrix[-1, :-1] - matrix.diagonal()[:-1]))


def forgetting(accuracy: ArrayLike) -> NDArray[np.float64] | None:
    """For each client but the last: the best accuracy before the last hop minus that at the end.

    Below 0 where the last hop helped. None for a chain of one hop.
    """
    matrix = _square(accuracy)
    if len(matrix) < 2:
        return None
    known = np.where(np.tri(len(matrix), dtype=bool), matrix, -np.inf)
    worse: NDArray[np.float64] = known[:-1, :-1].max(axis=0) - matrix[-1, :-1]
    return worse


def start_point_spread(accuracies: Sequence[float]) -> float | None:
    """The standard deviation of the final accuracy over chains that start at different clients.

    All starts that were tried count as the whole population. None for a single one.
    """
    return float(np.std(accuracies)) if len(accuracies) > 1 else None


def _square(accuracy: ArrayLike) -> NDArray[np.float64]:
    matrix = np.asarray(accuracy, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"accuracies must be a matrix with one row and one column for each hop, got {matrix.shape}")
    if not np.isfinite(matrix[np.tril_indices(len(matrix))]).all():
        raise ValueError("an accuracy on or below the diagonal is not a number")
    return matrix
