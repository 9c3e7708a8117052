"""Principal components of clients: long vectors made short, with little lost of what sets clients apart.

Rule: centre the columns (and, if asked for, divide them by their deviation), then keep as many components as it takes
to explain more than a share of the variance. The result are the coordinates of every client.

Deviations: none from scikit-learn's full SVD, up to signs. Clients are few and weights are many, so the components are
read off the K×K matrix of products between clients, summed block by block of columns, instead of the K×d matrix
itself. Of very many clients a part may define the components for all. Clients that do not differ are all at 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.profiles.base import Vectors
from fedrelay.local.client_profile import ProfileVector

BLOCK = 8192
"""Columns looked at at a time: the double-precision copy stays small."""


def principal_components(
    rows: ProfileVector, share: float, *, standardise: bool = False, fitted: NDArray[np.int64] | None = None
) -> Vectors:
    """The coordinates of rows along the components that explain more than this share of their variance.

    `fitted` are the rows that define centre and components; all where it is None.
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
    return found * np.where(_first_large(found) < 0, -1, 1)


def _first_large(found: Vectors) -> Vectors:
    """The entry of every component that is furthest from 0; its sign is made positive, since either one is right."""
    largest: Vectors = np.take_along_axis(found, np.abs(found).argmax(axis=0)[None], axis=0)[0]
    return largest
