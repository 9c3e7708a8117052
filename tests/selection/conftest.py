"""What a choice of clients must keep, spelled out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedrelay.selection.cluster_balance import Clusters


def keeps_all_constraints(choice: np.ndarray, clusters: Clusters, count: int) -> bool:
    """C1, C2 and C3 of one row, pair by pair as in the paper: by its equation, or by the footnote to it."""
    counts = np.bincount(clusters.cluster_at[choice], minlength=len(clusters.sizes)).tolist()
    sizes = clusters.sizes.tolist()

    def allowed(a: int, b: int) -> bool:
        if clusters.balance == "strict":
            return counts[a] - counts[b] <= 1 or counts[b] == sizes[b]
        return abs(counts[a] - counts[b]) <= 1 + abs(sizes[a] - sizes[b])

    return (
        len(choice) == count
        and len(set(choice.tolist())) == count
        and all(allowed(a, b) for a in range(len(counts)) for b in range(len(counts)))
    )


@pytest.fixture(scope="session")
def keeps() -> Callable[[np.ndarray, Clusters, int], bool]:
    return keeps_all_constraints


@pytest.fixture(scope="session")
def make_clusters() -> Callable[..., Clusters]:
    """Clusters of the given sizes, balanced strictly or as given."""
    return lambda sizes, balance="strict": Clusters.of(np.repeat(np.arange(len(sizes)), sizes), balance)
