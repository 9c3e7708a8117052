"""A histogram of scores by class, fine enough for curves such as ROC: it adds up, which the curves do not.

Bins are float32 numbers in their order, so the scale of the scores does not matter. Up to `MOST_BINS` different scores
have a bin each, and the curves are exact. Beyond that, all scores lose their last bits, as few as possible. How many
follows from the scores alone: the bits do not depend on how samples are divided, or in which order they are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_BINS = 2**14
"""The most bins that a histogram keeps: 0.4 MB in a message."""

SCORE_BITS = 31
"""The bits of a float32 without its sign."""


@dataclass(frozen=True)
class ScoreHistogram:
    """How many negative and positive samples have a score in each bin. Only bins with samples are stored."""

    bins: NDArray[np.int64]
    """The numbers of the bins, ascending."""

    counts: NDArray[np.int64]
    """`[bins, 2]`: negative and positive samples."""

    dropped_bits: int = 0
    """Scores that differ only in this many last bits of their float32 share a bin, and count as equal."""

    @classmethod
    def of(cls, scores: ArrayLike, positive: ArrayLike) -> ScoreHistogram:
        """The histogram of some samples."""
        labels = np.asarray(positive).astype(np.int64)
        return cls(_places(scores), np.stack([1 - labels, labels], axis=1))._merged()

    def __add__(self, other: ScoreHistogram) -> ScoreHistogram:
        dropped = max(self.dropped_bits, other.dropped_bits)
        bins = [each.bins >> (dropped - each.dropped_bits) for each in (self, other)]
        return ScoreHistogram(np.concatenate(bins), np.concatenate([self.counts, other.counts]), dropped)._merged()

    @classmethod
    def joined(cls, parts: Sequence[ScoreHistogram]) -> ScoreHistogram:
        """All entries of several histograms without dropped bits, one after another, for `repeated`."""
        return cls(np.concatenate([each.bins for each in parts]), np.concatenate([each.counts for each in parts]))

    def repeated(self, times: NDArray[np.int64]) -> ScoreHistogram:
        """The histogram in which each entry counts so many times."""
        kept = times > 0
        return ScoreHistogram(self.bins[kept], self.counts[kept] * times[kept, np.newaxis], self.dropped_bits)._merged()

    def _merged(self) -> ScoreHistogram:
        """With one entry for each bin, and as few dropped bits as the number of bins allows."""
        if not len(self.bins):
            return self
        order = np.argsort(self.bins, kind="stable")
        ordered, dropped = self.bins[order], self.dropped_bits
        while (starts := _starts_of_runs(ordered)).size > MOST_BINS:
            ordered, dropped = ordered >> 1, dropped + 1
        return ScoreHistogram(ordered[starts], np.add.reduceat(self.counts[order], starts), dropped)

    @property
    def nbytes(self) -> int:
        """The bytes of bins and counts."""
        return self.bins.nbytes + self.counts.nbytes

    @property
    def is_possible(self) -> bool:
        """Whether samples can have this histogram: bins in order, and no more bits dropped than needed."""
        ascending = bool((np.diff(self.bins) > 0).all() and (np.abs(self.bins) < 2**SCORE_BITS).all())
        # With one dropped bit less, a bin becomes at most two, and they would have been too many.
        needed = self.dropped_bits == 0 or (0 < self.dropped_bits <= SCORE_BITS and 2 * len(self.bins) > MOST_BINS)
        return ascending and needed and len(self.bins) <= MOST_BINS and bool((self.counts >= 0).all())

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


def _places(scores: ArrayLike) -> NDArray[np.int64]:
    """The place of each score among all float32 numbers, from below; 0 for 0 and −0."""
    with np.errstate(over="ignore"):  # what is too large for a float32 becomes infinite, which is the largest place
        numbers = np.asarray(scores).astype(np.float32)
    sizes = np.abs(numbers).view(np.int32).astype(np.int64)
    return np.where(np.signbit(numbers), -sizes, sizes)


def _starts_of_runs(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each run of equal numbers starts."""
    return np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])
