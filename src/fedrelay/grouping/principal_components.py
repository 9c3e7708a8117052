"""Principal components of client vectors: shorter vectors that keep most of the differences between clients.

Rule: centre the columns (and optionally divide them by their standard deviation), then keep as many components as are
needed to explain more than a given share of the variance. The result is the coordinates of each client.

Deviations: none from scikit-learn's full SVD, up to signs. There are few clients and many weights, so the components
are computed from the K×K matrix of products between clients, summed over blocks of columns, not from the K×d matrix. If
there are very many clients, some of them can define the components for all. If all clients are equal, all coordinates
are 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.profiles.base import Vectors
from fedrelay.local.client_profiler import ProfileVector

BLOCK = 8192
"""Columns that are processed together, to keep the float64 copy small."""


def principal_components(
    rows: ProfileVector, share: float, *, standardise: bool = False, fitted: NDArray[np.int64] | None = None
) -> Vectors:
    """The coordinates of rows along the principal components.

    Args:
        rows: One vector per client.
        share: Keep as many components as explain more than this share of the variance.
        standardise: Scale the columns to unit variance first.
        fitted: The rows that define centre and components; None for all.
    """
    some = slice(None) if fitted is None else fitted
    products = np.zeros((len(rows), len(rows) if fitted is None else len(fitted)))
    for begin in range(0, rows.shape[1], BLOCK):
        block = rows[:, begin : begin + BLOCK].astype(np.float64)
        block -= block[some].mean(axis=0)
        if standardise:
            spread = block[some].std(axis=0)
            block /= np.where(spread > 0, spread, 1)
        products += block @ block[some].T
    variances, directions = np.linalg.eigh(products[some])
    variances, directions = np.maximum(variances[::-1], 0), directions[:, ::-1]
    rank = int(np.count_nonzero(variances > len(directions) * np.finfo(np.float64).eps * variances[0]))
    if not rank:
        return np.zeros((len(rows), 1))
    explained = np.cumsum(variances[:rank]) / variances[:rank].sum()
    kept = min(rank, int(np.searchsorted(explained, share, side="right")) + 1)
    found: Vectors = products @ (directions[:, :kept] / np.sqrt(variances[:kept]))
    # The sign of a component is arbitrary; make its largest entry positive.
    largest = np.take_along_axis(found, np.abs(found).argmax(axis=0)[None], axis=0)[0]
    return found * np.where(largest < 0, -1, 1)
