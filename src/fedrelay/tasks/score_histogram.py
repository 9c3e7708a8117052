"""A histogram of scores by class, fine enough for curves such as ROC: it adds up, which the curves do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

LIMIT = 16.0
"""Logits are cut off at ± this value: their probability is then within 1e-7 of 0 or 1."""

BINS_PER_UNIT = 2048
"""Two scores in the same bin count as equal."""


@dataclass(frozen=True)
class ScoreHistogram:
    """How many negative and positive samples have a logit in each bin. Only bins with samples are stored."""

    bins: NDArray[np.int64]
    """The numbers of the bins, ascending."""

    counts: NDArray[np.int64]
    """`[bins, 2]`: negative and positive samples."""

    @classmethod
    def of(cls, logits: ArrayLike, positive: ArrayLike) -> ScoreHistogram:
        """The histogram of some samples."""
        clipped = np.clip(np.asarray(logits, np.float64), -LIMIT, LIMIT)
        numbers = np.floor(clipped * BINS_PER_UNIT).astype(np.int64)
        labels = np.asarray(positive).astype(np.int64)
        return cls(numbers, np.stack([1 - labels, labels], axis=1))._merged()

    def __add__(self, other: ScoreHistogram) -> ScoreHistogram:
        joined = np.concatenate([self.bins, other.bins]), np.concatenate([self.counts, other.counts])
        return ScoreHistogram(*joined)._merged()

    def _merged(self) -> ScoreHistogram:
        bins, place = np.unique(self.bins, return_inverse=True)
        counts = np.zeros((len(bins), 2), np.int64)
        np.add.at(counts, place, self.counts)
        return ScoreHistogram(bins, counts)

    @property
    def auroc(self) -> float | None:
        """The probability that a positive sample scores higher than a negative one; None without both."""
        negative, positive = self.counts.sum(0).tolist()
        if not negative or not positive:
            return None
        below = np.cumsum(self.counts[:, 0]) - self.counts[:, 0]
        wins = (self.counts[:, 1] * (below + self.counts[:, 0] / 2)).sum()
        return float(wins / (negative * positive))

    @property
    def average_precision(self) -> float | None:
        """The mean of the precision at each positive sample, from the highest score on; None without positives."""
        positive = int(self.counts[:, 1].sum())
        if not positive:
            return None
        hits = np.cumsum(self.counts[::-1, 1])
        found = np.cumsum(self.counts[::-1].sum(1))
        return float((hits / found * self.counts[::-1, 1]).sum() / positive)
