"""How a metric spreads over clients: its mean, the worst clients, and whether size matters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import numpy as np
from numpy.typing import NDArray

SIZE_GROUPS = ("small", "medium", "large")
"""A third of the clients each, by their number of train samples."""


@dataclass(frozen=True)
class ClientSpread:
    """A metric over all clients for which it is known."""

    clients: int
    """How many they are."""

    mean: float
    """The mean over clients, each of which counts once."""

    std: float
    """The standard deviation over clients, which are all there are: divided by their number."""

    worst: str
    """The name of the worst client; of several, the first."""

    worst_value: float
    worst_decile: float
    """The mean of the worst tenth of the clients, rounded up: of up to ten clients, the worst one."""

    size_correlation: float | None
    """Spearman's rank correlation of the number of train samples and the metric; None where either is constant."""

    by_size: Mapping[str, float]
    """The mean of the third of the clients with the fewest train samples, of the middle third, and of the largest; of
    fewer than three clients there are none."""


def client_spread(
    names: Sequence[str], values: Sequence[float], sizes: Sequence[int], *, higher_is_better: bool
) -> ClientSpread:
    """The spread of a metric over clients.

    Args:
        names: The names of the clients, at least one.
        values: The metric of each.
        sizes: The number of train samples of each.
        higher_is_better: Whether the worst client has the lowest value.

    >>> found = client_spread(["a", "b", "c"], [0.9, 0.5, 0.7], [30, 10, 20], higher_is_better=True)
    >>> found.worst, found.worst_decile, found.size_correlation
    ('b', 0.5, 1.0)
    """
    worst_first = sorted(range(len(values)), key=lambda place: values[place] if higher_is_better else -values[place])
    tenth = worst_first[: math.ceil(len(values) / 10)]
    by_size = sorted(range(len(values)), key=lambda place: sizes[place])
    thirds = np.array_split(by_size, len(SIZE_GROUPS)) if len(values) >= len(SIZE_GROUPS) else []
    return ClientSpread(
        len(values),
        fmean(values),
        pstdev(values),
        names[worst_first[0]],
        values[worst_first[0]],
        fmean(values[place] for place in tenth),
        rank_correlation(sizes, values),
        {name: fmean(values[place] for place in group) for name, group in zip(SIZE_GROUPS, thirds, strict=False)},
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation: that of the ranks, where equal values share the mean of theirs; None if undefined.

    >>> rank_correlation([1, 2, 3], [10.0, 30.0, 20.0])
    0.5
    """
    one, other = (_ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    norm = math.sqrt(float(one @ one) * float(other @ other))
    return float(one @ other) / norm if norm else None


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, place, times = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(times)
    ranks: NDArray[np.float64] = (last - (times - 1) / 2)[place]
    return ranks
