"""Clusters of clients with similar models, and subsets that are balanced over the clusters.

Paper: M. Arafeh et al., WFSL, 2025, objective O1 and constraint C3 with its footnote. Clients are clustered by k-means
on the principal components of their vectors. If cluster a has |Z_a| clients and n_a of them are selected, the footnote
asks for every two clusters (`balance: strict`)

    n_a − n_b ≤ 1, unless cluster b is exhausted: n_b = |Z_b|,

and equation 11 (`balance: equation`)

    |n_a − n_b| ≤ 1 + ||Z_a| − |Z_b||.

Deviations: the equation lets large clusters dominate, so the footnote is the default. The paper does not say how many
components are kept; here they explain 90 % of the variance. If there are very many clients, a random part of them
defines the components.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.kmeans import kmeans
from fedrelay.grouping.principal_components import principal_components

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Balance = Literal["strict", "equation"]

VARIANCE = 0.9
"""The share of the variance that the principal components explain."""

MOST_FITTED = 1000
"""At most this many clients define the principal components."""


def cluster_clients(vectors: Floats, clusters: int, rng: np.random.Generator) -> Ints:
    """The cluster of each client; at most `clusters` different ones."""
    fitted = rng.choice(len(vectors), MOST_FITTED, replace=False) if len(vectors) > MOST_FITTED else None
    return kmeans(principal_components(vectors, VARIANCE, fitted=fitted), min(clusters, len(vectors)), rng)


@dataclass(frozen=True)
class Clusters:
    """Clients sorted by cluster, small clusters first.

    A subset is a row of *positions* in `clients`. The positions of a cluster are consecutive.
    """

    clients: Ints
    sizes: Ints
    balance: Balance = "strict"

    @classmethod
    def of(cls, labels: Ints, balance: Balance = "strict") -> Clusters:
        """From the cluster label of each client; unused labels are skipped."""
        _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        by_size = np.argsort(sizes, kind="stable")
        rank = np.argsort(by_size)
        return cls(np.argsort(rank[labels], kind="stable"), sizes[by_size], balance)

    @cached_property
    def starts(self) -> Ints:
        """The first position of each cluster."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def cluster_at(self) -> Ints:
        """The cluster of each position."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def counts(self, subsets: Ints) -> Ints:
        """The number of clients from each cluster, `[rows, clusters]`."""
        rows, width = len(subsets), len(self.sizes)
        flat = self.cluster_at[subsets] + width * np.arange(rows)[:, None]
        return np.bincount(flat.ravel(), minlength=rows * width).reshape(rows, width)

    def balanced(self, subsets: Ints) -> NDArray[np.bool_]:
        """Which rows are balanced."""
        return self._worst_pair(self.counts(subsets))[0] <= 1

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Draw balanced rows of `count` different positions, in random order.

        Each pass takes one random client from every cluster that has one left; the last pass ends when the row is full.
        This is balanced: a cluster with clients left was in all passes except perhaps the last, so no other cluster is
        ahead of it by more than 1. A cluster b with no clients left is behind by n_a − |Z_b| ≤ |Z_a| − |Z_b|, which the
        equation allows.
        """
        taken = self._counts_to_draw(rows, count, rng)
        # Sorting by cluster, then at random, shuffles within each cluster; halved, because 0.999… could round up.
        shuffled = np.argsort(self.cluster_at + rng.random((rows, len(self.clients))) / 2, axis=1)
        rank = np.arange(len(self.clients)) - self.starts[self.cluster_at]
        drawn = shuffled[rank < taken[:, self.cluster_at]].reshape(rows, count)
        return rng.permuted(drawn, axis=1)

    def _counts_to_draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """How many clients each row takes from each cluster."""
        full = 0
        while np.minimum(full + 1, self.sizes).sum() <= count and full < self.sizes[-1]:
            full += 1
        whole = np.minimum(full, self.sizes)
        keys = np.where(self.sizes > full, rng.random((rows, len(self.sizes))), 2.0)
        ranks = np.argsort(np.argsort(keys, axis=1), axis=1)
        taken: Ints = whole + (ranks < count - whole.sum())
        return taken

    def repair(self, subsets: Ints, rng: np.random.Generator) -> Ints:
        """Replace duplicate clients, and clients of clusters that have too many.

        A duplicate is replaced by a random other client. Then, while two clusters are not balanced, a random client of
        the one with more is replaced by a random unused client of the other. There always is one, because no cluster is
        too far ahead of one without unused clients. Each replacement lowers Σ n², so this terminates.
        """
        subsets = subsets.copy()
        zeros = np.zeros(len(subsets), np.int64)
        duplicate = _duplicates(subsets)
        subsets[duplicate] = -1
        while len(rows := np.flatnonzero(duplicate.any(axis=1))):
            gene = np.argmax(duplicate[rows], axis=1)
            subsets[rows, gene] = _random_unused(subsets[rows], zeros[rows], zeros[rows] + len(self.clients), rng)
            duplicate[rows, gene] = False
        rows = np.arange(len(subsets))
        while len(rows):
            excess, fuller, emptier = self._worst_pair(self.counts(subsets[rows]))
            violated = excess > 1
            rows, fuller, emptier = rows[violated], fuller[violated], emptier[violated]
            removable = self.cluster_at[subsets[rows]] == fuller[:, None]
            gene = np.argmax(np.where(removable, rng.random(removable.shape), -1), axis=1)
            subsets[rows, gene] = _random_unused(subsets[rows], self.starts[emptier], self.sizes[emptier], rng)
        return subsets

    def _worst_pair(self, counts: Ints) -> tuple[Ints, Ints, Ints]:
        """For each row, by how much a cluster a is ahead of a cluster b at most, beyond what is allowed but 1; a; b."""
        return self._worst_by_footnote(counts) if self.balance == "strict" else self._worst_by_equation(counts)

    def _worst_by_footnote(self, counts: Ints) -> tuple[Ints, Ints, Ints]:
        """For each row, the largest n_a − n_b over clusters b with clients left, and its clusters a and b."""
        unexhausted = np.where(counts < self.sizes, counts, counts.max(initial=0) + 1)
        fullest, emptiest = np.argmax(counts, axis=1), np.argmin(unexhausted, axis=1)
        rows = np.arange(len(counts))
        return counts[rows, fullest] - unexhausted[rows, emptiest], fullest, emptiest

    def _worst_by_equation(self, counts: Ints) -> tuple[Ints, Ints, Ints]:
        """For each row, the largest n_a − n_b − ||Z_a| − |Z_b||, and its clusters a and b.

        If a comes after b, then |Z_a| ≥ |Z_b| and this is (n_a − |Z_a|) − (n_b − |Z_b|). If a comes before b, it is
        (n_a + |Z_a|) − (n_b + |Z_b|). Running minima and maxima avoid comparing all pairs.
        """
        spare, reach = counts - self.sizes, counts + self.sizes
        ahead = spare - np.minimum.accumulate(spare, axis=1)
        behind = np.maximum.accumulate(reach, axis=1) - reach
        first, second = np.argmax(ahead, axis=1), np.argmax(behind, axis=1)
        rows, clusters = np.arange(len(counts)), np.arange(len(self.sizes))
        lowest = np.argmin(np.where(clusters <= first[:, None], spare, spare.max(initial=0) + 1), axis=1)
        highest = np.argmax(np.where(clusters <= second[:, None], reach, -1), axis=1)
        larger_leads = ahead[rows, first] >= behind[rows, second]
        return (
            np.where(larger_leads, ahead[rows, first], behind[rows, second]),
            np.where(larger_leads, first, highest),
            np.where(larger_leads, lowest, second),
        )


def _duplicates(subsets: Ints) -> NDArray[np.bool_]:
    """Where a row repeats an earlier entry."""
    order = np.argsort(subsets, axis=1, kind="stable")
    ordered = np.take_along_axis(subsets, order, axis=1)
    same = np.zeros(subsets.shape, bool)
    np.put_along_axis(same, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return same


def _random_unused(subsets: Ints, starts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
    """For each row, a random position in starts … starts + sizes − 1 that the row does not contain.

    The r-th unused position comes after those used positions that have at most r unused ones before them.
    """
    offset = subsets - starts[:, None]
    inside = (offset >= 0) & (offset < sizes[:, None])
    drawn = rng.integers(sizes - inside.sum(axis=1))
    beyond = sizes.max(initial=0) + subsets.shape[1]
    used = np.sort(np.where(inside, offset, beyond), axis=1)
    unused_before = used - np.arange(subsets.shape[1])
    position: Ints = starts + drawn + (unused_before <= drawn[:, None]).sum(axis=1)
    return position
