"""What a choice of clients must keep, spelled out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedrelay.selection.cluster_balance import Clusters


def keeps_all_constraints(choice: np.ndarray, clusters: Clusters, count: int) -> bool:
    """C1, C2 and C3 of one row, pair by pair as in the paper."""
    counts = np.bincount(clusters.cluster_at[choice], minlength=len(clusters.sizes)).tolist()
    pairs = [(a, b) for a in range(len(counts)) for b in range(a)]
    sizes = clusters.sizes.tolist()
    return (
        len(choice) == count
        and len(set(choice.tolist())) == count
        and all(abs(counts[a] - counts[b]) <= 1 + abs(sizes[a] - sizes[b]) for a, b in pairs)
    )


@pytest.fixture(scope="session")
def keeps() -> Callable[[np.ndarray, Clusters, int], bool]:
    return keeps_all_constraints


@pytest.fixture(scope="session")
def make_clusters() -> Callable[[list[int]], Clusters]:
    """Clusters of the given sizes."""
    return lambda sizes: Clusters.of(np.repeat(np.arange(len(sizes)), sizes))
