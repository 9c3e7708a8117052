"""K-means groups: similar clients form a cluster, and groups take clients from the clusters in turn.

Paper: R. Zaccone et al., FedSeq, ICPR 2022, algorithm 2; k-means++ of D. Arthur and S. Vassilvitskii, SODA 2007.

Rule: k-means with as many clusters as classes. Groups are filled one after another; each next client is a random one of
the next cluster in cyclic order, skipping empty clusters.

Deviations: with `order: last` the client with the highest number is taken, as in the authors' code. K-means runs once,
from k-means++, with Euclidean distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.group_filling import GroupSizeBounds, fill_groups
from fedrelay.grouping.profiles import Vectors
from fedrelay.routes.base import Groups

ITERATIONS = 100

Order = Literal["random", "last"]


def groups_across_clusters(
    vectors: Vectors,
    sizes: NDArray[np.int64],
    bounds: GroupSizeBounds,
    rng: np.random.Generator,
    *,
    clusters: int,
    order: Order = "random",
) -> Groups:
    """Groups that take clients from all clusters in turn; groups contain row numbers of `vectors`."""
    labels = kmeans(vectors, clusters, rng)
    members = [np.flatnonzero(labels == cluster) for cluster in range(clusters)]
    queues = [rng.permutation(each) if order == "random" else each[::-1] for each in members]
    return fill_groups(list(_round_robin([queue.tolist() for queue in queues])), sizes, bounds)


def kmeans(vectors: Vectors, clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The cluster of each vector; there are fewer clusters if there are fewer different vectors."""
    points = vectors - vectors.mean(axis=0)
    centres = _initial_centres(points, clusters, rng)
    labels = _nearest(points, centres)
    for _ in range(ITERATIONS):
        counts = np.bincount(labels, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, points)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(1, counts)[:, None], centres)
        before, labels = labels, _nearest(points, centres)
        if np.array_equal(before, labels):
            break
    return labels


def _initial_centres(points: Vectors, clusters: int, rng: np.random.Generator) -> Vectors:
    """k-means++: each centre is drawn with probability proportional to its squared distance from the earlier ones."""
    rows = [int(rng.integers(len(points)))]
    gaps = np.square(points - points[rows[0]]).sum(axis=1)
    while len(rows) < clusters and gaps.any():
        rows.append(int(rng.choice(len(points), p=gaps / gaps.sum())))
        gaps = np.minimum(gaps, np.square(points - points[rows[-1]]).sum(axis=1))
    return points[rows]


def _nearest(points: Vectors, centres: Vectors) -> NDArray[np.int64]:
    """The nearest centre of each point; the first on a tie."""
    nearest: NDArray[np.int64] = np.argmin(np.square(centres).sum(axis=1) - 2 * points @ centres.T, axis=1)
    return nearest


def _round_robin(queues: list[list[int]]) -> Iterator[int]:
    """One entry of each queue in cyclic order, skipping empty queues."""
    for index in range(max(map(len, queues))):
        yield from (queue[index] for queue in queues if index < len(queue))
