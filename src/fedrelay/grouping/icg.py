"""ICG, inter-cluster grouping: clusters of similar clients, all of the same size; each group has one client of each.

Paper: S. Zeng, Z. Li, H. Yu, Y. He, Z. Xu, D. Niyato, H. Yu. Heterogeneous Federated Learning via Grouped
Sequential-to-Parallel Training (FedGSP). DASFAA 2022, algorithm 2.

Rule: M groups of K clients make L = ⌊K/M⌋ clusters. L·M random clients are clustered so that each cluster has exactly
M: from a random balanced start, cluster means and the optimal balanced assignment to them alternate until the
assignment repeats or `iterations` are done. Each group then gets one random client of each cluster. The other K − L·M
clients are left out (`leftovers: drop`) or join one group each (`spread`), so that some groups have one client more.

Approximation: more than `MOST_AT_ONCE` clients are divided at random into equal parts, and each part forms its share of
the groups by itself. The time grows with the number of clients, not faster; what it costs in quality is in
docs/performance.md.

Deviations: the paper clusters L·⌊K/L⌋ clients, which can be more than the groups need. It does not specify the start or
the solver (see `balanced_assignment_solver`). With more groups than clients, there are as many groups as clients. The
paper uses the profile `counts`; any other profile works too.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.balanced_assignment_solver import DistinctPoints, balanced_assignment
from fedrelay.grouping.profiles import Vectors
from fedrelay.routes.base import Groups

Leftovers = Literal["spread", "drop"]

MOST_AT_ONCE = 50_000
"""The most clients that are clustered together."""


def icg_groups(
    vectors: Vectors,
    rng: np.random.Generator,
    *,
    groups: int,
    leftovers: Leftovers = "spread",
    iterations: int = 10,
) -> Groups:
    """Groups with similar class distributions; groups contain row numbers of `vectors`."""
    clients = len(vectors)
    if groups >= clients:  # in order, so that it equals FedAvg
        return tuple((client,) for client in range(clients))
    shuffled = rng.permutation(clients)
    if clients > MOST_AT_ONCE and groups > 1:
        formed: list[tuple[int, ...]] = []
        for part, count in _parts(shuffled, groups):
            found = icg_groups(vectors[part], rng, groups=count, leftovers=leftovers, iterations=iterations)
            formed += [tuple(part[list(group)].tolist()) for group in found]
        return tuple(formed)
    length = clients // groups
    clustered, others = np.split(shuffled, [length * groups])
    labels = balanced_clusters(vectors[clustered], length, iterations)
    clusters = [rng.permutation(clustered[labels == cluster]) for cluster in range(length)]
    rows = np.stack(clusters, axis=1).tolist()
    if leftovers == "spread":
        for group, client in enumerate(others.tolist()):
            rows[group].append(client)
    return tuple(map(tuple, rows))


def _parts(clients: NDArray[np.int64], groups: int) -> list[tuple[NDArray[np.int64], int]]:
    """Divide clients into parts of at most `MOST_AT_ONCE`, or one for each group; each with its number of groups."""
    count = min(groups, -(-len(clients) // MOST_AT_ONCE))
    ends = groups * np.arange(1, count + 1) // count
    return list(
        zip(np.split(clients, len(clients) * ends[:-1] // groups), np.diff(ends, prepend=0).tolist(), strict=True)
    )


def balanced_clusters(vectors: Vectors, clusters: int, iterations: int) -> NDArray[np.int64]:
    """The cluster of each vector; all clusters have the same size. The order of the vectors determines the start."""
    labels = np.arange(len(vectors)) % clusters
    if clusters in (1, len(vectors)):
        return labels
    points = DistinctPoints.of(vectors)
    for _ in range(iterations):
        before = labels
        labels = balanced_assignment(points, cluster_means(points, labels, clusters), len(labels) // clusters, before)
        if np.array_equal(before, labels):
            break
    return labels


def cluster_means(points: DistinctPoints, labels: NDArray[np.int64], clusters: int) -> Vectors:
    """The mean of each cluster; all have the same size."""
    by_cluster = np.argsort(labels, kind="stable")
    starts = np.arange(0, len(labels), len(labels) // clusters)
    sums: Vectors = np.add.reduceat(points.points[points.row_of[by_cluster]], starts, axis=0)
    return sums * clusters / len(labels)
