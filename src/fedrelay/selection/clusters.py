"""Clusters of clients whose models are alike, and the rule that a choice takes from all of them alike.

Paper: M. Arafeh et al., WFSL, 2025, objective O1 and constraint C3. Clients are clustered by k-means on their vectors,
compressed by principal component analysis. With |Z_a| clients in cluster a, of which n_a are chosen, C3 asks of every
two clusters

    |n_a − n_b| ≤ 1 + ||Z_a| − |Z_b||.

Deviations: the paper does not say how many components are kept; here they explain 90 % of the variance. Of very many
clients a random part defines the components.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.kmeans import kmeans
from fedrelay.grouping.profiles.components import principal_components

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

VARIANCE = 0.9
"""The share of the variance that compressed vectors keep."""

MOST_FITTED = 1000
"""So many clients at most define the principal components."""


def cluster_clients(vectors: Floats, clusters: int, rng: np.random.Generator) -> Ints:
    """The cluster of every client, at most so many of them."""
    few = len(vectors) <= MOST_FITTED
    fitted = None if few else rng.choice(len(vectors), MOST_FITTED, replace=False)
    return kmeans(principal_components(vectors, VARIANCE, fitted=fitted), min(clusters, len(vectors)), rng)


@dataclass(frozen=True)
class Clusters:
    """Clients by cluster, small clusters first.

    A choice is a row of *places* in `clients`. The places of a cluster are next to each other, so that a random free
    one is found by counting.
    """

    clients: Ints
    sizes: Ints

    @classmethod
    def of(cls, labels: Ints) -> Clusters:
        """From the cluster of every client; clusters without clients are passed over."""
        _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        by_size = np.argsort(sizes, kind="stable")
        rank = np.argsort(by_size)
        return cls(np.argsort(rank[labels], kind="stable"), sizes[by_size])

    @cached_property
    def starts(self) -> Ints:
        """The first place of every cluster."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def cluster_at(self) -> Ints:
        """The cluster of every place."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def counts(self, choices: Ints) -> Ints:
        """How many of every cluster each row has; [rows, clusters]."""
        rows, width = len(choices), len(self.sizes)
        flat = self.cluster_at[choices] + width * np.arange(rows)[:, None]
        return np.bincount(flat.ravel(), minlength=rows * width).reshape(rows, width)

    def balanced(self, choices: Ints) -> NDArray[np.bool_]:
        """Which rows keep C3."""
        return self._worst_pair(self.counts(choices))[0] <= 1

    def draw(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """Rows of so many different places that keep C3, in random order.

        Passes go through the clusters, each taking one random client of every cluster that has one left; the last pass
        ends where the row is full. This keeps C3: a cluster that is not used up has been in all passes but perhaps the
        last, so no other is ahead of it by more than 1; and one that is used up is behind another by n_a − |Z_b| ≤
        |Z_a| − |Z_b|.
        """
        taken = self._passes(rows, count, rng)
        # Sorting by cluster and then at random shuffles every cluster in its own places; halves, lest 0.999… round up.
        shuffled = np.argsort(self.cluster_at + rng.random((rows, len(self.clients))) / 2, axis=1)
        turn = np.arange(len(self.clients)) - self.starts[self.cluster_at]
        chosen = shuffled[turn < taken[:, self.cluster_at]].reshape(rows, count)
        return rng.permuted(chosen, axis=1)

    def _passes(self, rows: int, count: int, rng: np.random.Generator) -> Ints:
        """How many each row takes of every cluster."""
        full = 0
        while np.minimum(full + 1, self.sizes).sum() <= count and full < self.sizes[-1]:
            full += 1
        whole = np.minimum(full, self.sizes)
        lots = np.where(self.sizes > full, rng.random((rows, len(self.sizes))), 2.0)
        places_in_line = np.argsort(np.argsort(lots, axis=1), axis=1)
        taken: Ints = whole + (places_in_line < count - whole.sum())
        return taken

    def repair(self, choices: Ints, rng: np.random.Generator) -> Ints:
        """The rows, changed where they hold a client twice or do not keep C3.

        A client that stands there again gives way to a random other one. Then, while two clusters break C3, a random
        client of the one with more gives way to a random one of the other. That one has a free client, because a
        cluster that is used up breaks C3 with none. Each exchange lowers Σ n², so there is an end.
        """
        choices = choices.copy()
        everywhere = np.zeros(len(choices), np.int64)
        again = _repeats(choices)
        choices[again] = -1
        while len(rows := np.flatnonzero(again.any(axis=1))):
            gene = np.argmax(again[rows], axis=1)
            choices[rows, gene] = _free(choices[rows], everywhere[rows], everywhere[rows] + len(self.clients), rng)
            again[rows, gene] = False
        rows = np.arange(len(choices))
        while len(rows):
            excess, giver, taker = self._worst_pair(self.counts(choices[rows]))
            broken = excess > 1
            rows, giver, taker = rows[broken], giver[broken], taker[broken]
            given = self.cluster_at[choices[rows]] == giver[:, None]
            gene = np.argmax(np.where(given, rng.random(given.shape), -1), axis=1)
            choices[rows, gene] = _free(choices[rows], self.starts[taker], self.sizes[taker], rng)
        return choices

    def _worst_pair(self, counts: Ints) -> tuple[Ints, Ints, Ints]:
        """Of every row the two clusters that are furthest apart: n_a − n_b − ||Z_a| − |Z_b||, a and b.

        For a after b, and so |Z_a| ≥ |Z_b|, this is (n_a − |Z_a|) − (n_b − |Z_b|), and for a before b
        (n_a + |Z_a|) − (n_b + |Z_b|): each one minus the best before it, without a look at all pairs.
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


def _repeats(choices: Ints) -> NDArray[np.bool_]:
    """Where a row holds what it held before."""
    order = np.argsort(choices, axis=1, kind="stable")
    ordered = np.take_along_axis(choices, order, axis=1)
    same = np.zeros(choices.shape, bool)
    np.put_along_axis(same, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return same


def _free(choices: Ints, starts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
    """For every row, a random place of starts … starts + sizes − 1 that it does not hold.

    The r-th free place lies behind as many taken ones as have, in order, at most r free places before them.
    """
    held = choices - starts[:, None]
    inside = (held >= 0) & (held < sizes[:, None])
    drawn = rng.integers(sizes - inside.sum(axis=1))
    beyond = sizes.max(initial=0) + choices.shape[1]
    taken = np.sort(np.where(inside, held, beyond), axis=1)
    free_before = taken - np.arange(choices.shape[1])
    place: Ints = starts + drawn + (free_before <= drawn[:, None]).sum(axis=1)
    return place
