"""ICG, inter-cluster grouping: equal clusters of clients that are alike, and in every group one client of each.

Paper: S. Zeng, Z. Li, H. Yu, Y. He, Z. Xu, D. Niyato, H. Yu. Heterogeneous Federated Learning via Grouped
Sequential-to-Parallel Training (FedGSP). DASFAA 2022, algorithm 2.

Rule: M groups of K clients make L = ⌊K/M⌋ clusters. L·M random clients are clustered so that each cluster has exactly
M: from a random balanced start, cluster means and the optimal balanced assignment to them alternate until the
assignment repeats or `iterations` are done. Each group then gets one random client of every cluster. The K − L·M others
sit out (`leftovers: drop`) or join the groups in turn (`spread`), so that some groups have one client more.

Deviations: the paper prints L·⌊K/L⌋ clustered clients, which can be more than the groups take. It leaves the start open
and its solver unnamed; see the file transport. More groups than clients are as many as clients. The paper describes
clients by `counts`; any other profile will do.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.profiles import Vectors
from fedrelay.grouping.transport import PointSet, balanced_assignment
from fedrelay.routes.base import Groups

Leftovers = Literal["spread", "drop"]


def icg_groups(
    vectors: Vectors,
    rng: np.random.Generator,
    *,
    groups: int,
    leftovers: Leftovers = "spread",
    iterations: int = 10,
) -> Groups:
    """Groups that are as alike as their number allows."""
    clients = len(vectors)
    if groups >= clients:  # in their order, so that it is FedAvg, client by client
        return tuple((client,) for client in range(clients))
    length = clients // groups
    shuffled = rng.permutation(clients)
    chosen, others = np.split(shuffled, [length * groups])
    labels = balanced_clusters(vectors[chosen], length, iterations)
    clusters = [rng.permutation(chosen[labels == cluster]) for cluster in range(length)]
    formed = np.stack(clusters, axis=1).tolist()
    if leftovers == "spread":
        for group, client in enumerate(others.tolist()):
            formed[group].append(client)
    return tuple(map(tuple, formed))


def balanced_clusters(vectors: Vectors, clusters: int, iterations: int) -> NDArray[np.int64]:
    """The cluster of every vector, equally many in each; the order of the vectors is the (random) start."""
    labels = np.arange(len(vectors)) % clusters
    if clusters in (1, len(vectors)):
        return labels
    cloud = PointSet.of(vectors)
    for _ in range(iterations):
        before = labels
        labels = balanced_assignment(cloud, cluster_means(cloud, labels, clusters), len(labels) // clusters, before)
        if np.array_equal(before, labels):
            break
    return labels


def cluster_means(cloud: PointSet, labels: NDArray[np.int64], clusters: int) -> Vectors:
    """The mean of every one of the equal clusters."""
    by_cluster = np.argsort(labels, kind="stable")
    starts = np.arange(0, len(labels), len(labels) // clusters)
    sums: Vectors = np.add.reduceat(cloud.points[cloud.which[by_cluster]], starts, axis=0)
    return sums * clusters / len(labels)
