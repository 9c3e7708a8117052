"""How differently the classes are spread: over clients, and over the groups that travel together.

CPD is the class probability distance of FedGSP (Zeng et al. 2022): the squared maximum mean discrepancy of
two class distributions. The paper leaves the embedding open; labels are one-hot points under a Gaussian
kernel here, for which the expectation has a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrelay.rng import generator

MAX_PAIRS = 1_000_000
"""Up to so many pairs every pair counts; of more, so many random ones do, always the same."""

_CHUNK = 1 << 15


def cpd(p: ArrayLike, q: ArrayLike, gamma: float = 0.5) -> float:
    """Class probability distance of two class distributions: 0 for equal, at most 2 (1 - exp(-2 gamma))."""
    return _kernel_gap(gamma) * float(np.square(np.subtract(p, q)).sum())


def pairwise_cpd(histograms: ArrayLike, gamma: float = 0.5) -> NDArray[np.float64]:
    """The CPD of all pairs of rows, or of `MAX_PAIRS` random ones; rows without samples are left out."""
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
    """The median of `pairwise_cpd`; None where there is no pair."""
    distances = pairwise_cpd(histograms, gamma)
    return float(np.median(distances)) if len(distances) else None


def cpd_matrix(histograms: ArrayLike, gamma: float = 0.5) -> NDArray[np.float64]:
    """The CPD of every row from every row."""
    counts = np.asarray(histograms, dtype=np.float64)
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    squares = np.square(shares).sum(axis=1)
    distances = squares[:, None] + squares - 2 * shares @ shares.T
    matrix: NDArray[np.float64] = _kernel_gap(gamma) * np.maximum(0, distances)
    return matrix


def balance_ratio(histogram: ArrayLike) -> float:
    """Rarest class over most frequent class: 1 for equal classes, 0 if one is missing."""
    counts = np.asarray(histogram)
    most = counts.max(initial=0)
    return float(counts.min() / most) if most else 0.0


def covered_classes(histogram: ArrayLike) -> float:
    """The share of classes that occur."""
    return float(np.mean(np.asarray(histogram) > 0))


@dataclass(frozen=True)
class GroupQuality:
    """How alike groups are, and how complete each is."""

    median_cpd: float | None
    """Over all pairs of groups; None for a single one."""

    balance_ratio: float
    covered_classes: float
    """Means over groups."""

    clients: NDArray[np.int64]
    samples: NDArray[np.int64]
    """Of each group."""


def group_quality(
    groups: Sequence[Sequence[int]], histograms: NDArray[np.int64], sizes: NDArray[np.int64], gamma: float = 0.5
) -> GroupQuality:
    """The quality of groups of clients; `histograms` and `sizes` have one entry for every client."""
    counts = group_histograms(groups, histograms)
    return GroupQuality(
        median_cpd=median_cpd(counts, gamma),
        balance_ratio=float(np.mean([balance_ratio(each) for each in counts])),
        covered_classes=float(np.mean([covered_classes(each) for each in counts])),
        clients=np.array([len(group) for group in groups]),
        samples=np.array([sizes[list(group)].sum() for group in groups]),
    )


def group_histograms(groups: Sequence[Sequence[int]], histograms: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class counts of every group."""
    return np.stack([histograms[list(group)].sum(axis=0) for group in groups])


def _kernel_gap(gamma: float) -> float:
    """What the kernel of a class with itself exceeds that of two different ones by."""
    return -math.expm1(-2 * gamma)


def _pairs(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if count * (count - 1) // 2 <= MAX_PAIRS:
        first, second = np.triu_indices(count, k=1)
        return first, second
    rng = generator(0, "cpd pairs", count)
    chosen = rng.integers(count, size=MAX_PAIRS)
    return chosen, (chosen + rng.integers(1, count, size=MAX_PAIRS)) % count
