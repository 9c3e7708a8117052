"""K-means groups: clients that are alike form a cluster, and every group takes one client of each cluster in turn.

Paper: R. Zaccone et al., FedSeq, ICPR 2022, algorithm 2; k-means++ of D. Arthur and S. Vassilvitskii, SODA 2007.

Rule: k-means with as many clusters as there are classes. A pointer goes round the clusters, skipping empty ones, and is
not reset between groups; the open group takes a random client of the cluster pointed at until it is closed.

Deviations: with `order: last` the client with the highest number is taken, as the authors' code does. K-means starts
once, from k-means++, and knows Euclidean distance only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.bounds import Bounds, fill
from fedrelay.grouping.profiles import Vectors
from fedrelay.routes.base import Groups

ITERATIONS = 100

Order = Literal["random", "last"]


def kmeans_groups(
    vectors: Vectors,
    sizes: NDArray[np.int64],
    bounds: Bounds,
    rng: np.random.Generator,
    *,
    clusters: int,
    order: Order = "random",
) -> Groups:
    """Groups that take from all clusters alike."""
    labels = kmeans(vectors, clusters, rng)
    members = [np.flatnonzero(labels == cluster) for cluster in range(clusters)]
    queues = [rng.permutation(each) if order == "random" else each[::-1] for each in members]
    return fill(_in_turn([queue.tolist() for queue in queues]), sizes, bounds)


def kmeans(vectors: Vectors, clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The cluster of every vector; fewer are used where fewer vectors differ."""
    points = vectors - vectors.mean(axis=0)
    centres = _far_apart(points, clusters, rng)
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


def _far_apart(points: Vectors, clusters: int, rng: np.random.Generator) -> Vectors:
    """k-means++: each centre is drawn by its squared distance from those before."""
    chosen = [int(rng.integers(len(points)))]
    gaps = np.square(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < clusters and gaps.any():
        chosen.append(int(rng.choice(len(points), p=gaps / gaps.sum())))
        gaps = np.minimum(gaps, np.square(points - points[chosen[-1]]).sum(axis=1))
    return points[chosen]


def _nearest(points: Vectors, centres: Vectors) -> NDArray[np.int64]:
    """The nearest centre of every point, the first of several."""
    nearest: NDArray[np.int64] = np.argmin(np.square(centres).sum(axis=1) - 2 * points @ centres.T, axis=1)
    return nearest


def _in_turn(queues: list[list[int]]) -> Iterator[int]:
    """One from each queue, round and round, passing over empty ones."""
    for turn in range(max(map(len, queues))):
        yield from (queue[turn] for queue in queues if turn < len(queue))
