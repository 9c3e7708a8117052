"""Label skew: how much class distributions differ between clients, and between groups.

CPD is the class probability distance of FedGSP (Zeng et al. 2022): the squared maximum mean discrepancy of two class
distributions. The paper does not define the embedding. Here labels are one-hot vectors with a Gaussian kernel, which
gives a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrelay.rng import generator

MAX_PAIRS = 1_000_000
"""If there are more pairs than this, a fixed random sample of this many pairs is used."""

_CHUNK = 1 << 15


def cpd(p: ArrayLike, q: ArrayLike, gamma: float = 0.5) -> float:
    """The class probability distance of two class distributions: 0 if equal, at most 2 (1 - exp(-2 gamma))."""
    return _kernel_gap(gamma) * float(np.square(np.subtract(p, q)).sum())


def pairwise_cpd(histograms: ArrayLike, gamma: float = 0.5) -> NDArray[np.float64]:
    """The CPD of all pairs of rows, or of `MAX_PAIRS` random pairs. Rows without samples are skipped."""
    counts = np.asarray(histograms, dtype=np.float64)
    totals = counts.sum(axis=1)
    shares = counts[totals > 0] / totals[totals > 0, None]
    first, second = _pairs(len(shares))
    distances = np.empty(len(first))
    for start in range(0, len(first), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        distances[chunk] = np.square(shares[first[chunk]] - shares[second[chunk]]).sum(axis=1)
    return _kernel_gap(gamma) * distances


def median_cpd(histograms: ArrayLike, gamma: float = 0.5) -> float | None:
    """The median of `pairwise_cpd`; None if there is no pair."""
    distances = np.sort(pairwise_cpd(histograms, gamma))
    if not len(distances):
        return None
    return float(distances[(len(distances) - 1) // 2] + distances[len(distances) // 2]) / 2  # np.median loads numpy.ma


def cpd_matrix(histograms: ArrayLike, gamma: float = 0.5) -> NDArray[np.float64]:
    """The CPD of every row from every row, `[rows, rows]`."""
    counts = np.asarray(histograms, dtype=np.float64)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    squares = np.square(shares).sum(axis=1)
    distances = squares[:, None] + squares - 2 * shares @ shares.T
    matrix: NDArray[np.float64] = _kernel_gap(gamma) * np.maximum(0, distances)
    return matrix


def balance_ratio(histogram: ArrayLike) -> float:
    """The size of the rarest class divided by that of the most frequent: 1 if balanced, 0 if a class is missing."""
    counts = np.asarray(histogram)
    most = counts.max(initial=0)
    return float(counts.min() / most) if most else 0.0


def covered_classes(histogram: ArrayLike) -> float:
    """The share of classes that occur."""
    return float(np.mean(np.asarray(histogram) > 0))


@dataclass(frozen=True)
class GroupQuality:
    """How similar groups are to each other, and how balanced each is."""

    median_cpd: float | None
    """Over all pairs of groups; None for a single group."""

    balance_ratio: float
    """Mean over groups."""

    covered_classes: float
    """Mean share of classes that occur in a group."""

    clients: NDArray[np.int64]
    """The number of clients of each group."""

    samples: NDArray[np.int64]
    """The number of samples of each group."""


def group_quality(
    groups: Sequence[Sequence[int]], histograms: NDArray[np.int64], sizes: NDArray[np.int64], gamma: float = 0.5
) -> GroupQuality:
    """The quality of groups of clients; `histograms` and `sizes` have one row per client."""
    counts = group_histograms(groups, histograms)
    return GroupQuality(
        median_cpd=median_cpd(counts, gamma),
        balance_ratio=float(np.mean([balance_ratio(each) for each in counts])),
        covered_classes=float(np.mean([covered_classes(each) for each in counts])),
        clients=np.array([len(group) for group in groups]),
        samples=np.array([sizes[list(group)].sum() for group in groups]),
    )


def group_histograms(groups: Sequence[Sequence[int]], histograms: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class counts of each group."""
    return np.stack([histograms[list(group)].sum(axis=0) for group in groups])


def _kernel_gap(gamma: float) -> float:
    """The kernel of a class with itself minus the kernel of two different classes."""
    return -math.expm1(-2 * gamma)


def _pairs(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if count * (count - 1) // 2 <= MAX_PAIRS:
        first, second = np.triu_indices(count, k=1)
        return first, second
    rng = generator(0, "cpd pairs", count)
    first = rng.integers(count, size=MAX_PAIRS)
    return first, (first + rng.integers(1, count, size=MAX_PAIRS)) % count
