"""The score of a subset of clients: similar models, and many samples.

Paper: M. Arafeh et al., WFSL, 2025, objectives O2 and O3. O2 is the sum of the cosine over all pairs of selected
clients, O3 the sum of their samples. Both are scaled by (x − min) / (max − min) and weighted by W1 and W2.

Deviations: each pair counts once, which does not change the ranking. A zero vector has cosine 0 with every other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_COMPARED = 3000
"""For at most this many clients, the cosines of all pairs are stored."""

_CHUNK = 1 << 23


@dataclass(frozen=True)
class MinMaxScale:
    """Min-max scaling of the objectives: their minimum and range."""

    low: Floats
    span: Floats

    @classmethod
    def of(cls, objectives: Floats) -> MinMaxScale:
        """The scale that maps these rows to 0 … 1."""
        low = objectives.min(axis=0)
        return cls(low, objectives.max(axis=0) - low)

    def score(self, objectives: Floats, weights: tuple[float, float]) -> Floats:
        """F = W1·norm(O2) + W2·norm(O3) of each row; an objective with range 0 counts as 0."""
        constant = self.span <= 0
        normed = np.where(constant, 0.0, (objectives - self.low) / np.where(constant, 1.0, self.span))
        score: Floats = normed @ np.asarray(weights)
        return score


@dataclass(frozen=True)
class SubsetObjectives:
    """Computes the objectives of subsets; a subset is a row of client numbers."""

    unit_vectors: Floats
    """The clients' vectors, normalised to length 1 (or 0)."""

    sizes: Ints

    @classmethod
    def of(cls, vectors: Floats, sizes: Ints) -> SubsetObjectives:
        """Normalise the vectors."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return cls(vectors / np.where(lengths > 0, lengths, 1.0), sizes)

    def measure(self, subsets: Ints) -> Floats:
        """O2 and O3 of each subset, `[rows, 2]`."""
        return np.stack([self._similarity(subsets), self.sizes[subsets].sum(axis=1)], axis=1)

    def _similarity(self, subsets: Ints) -> Floats:
        """The sum of the cosine over all pairs, in chunks to bound memory."""
        count, length = subsets.shape[1], self.unit_vectors.shape[1]
        by_pairs = len(self.unit_vectors) <= MOST_COMPARED and count <= length
        rows = max(1, _CHUNK // (count**2 if by_pairs else length))
        chunks = (subsets[start : start + rows] for start in range(0, len(subsets), rows))
        return np.concatenate([self._from_pairs(each) if by_pairs else self._from_sums(each) for each in chunks])

    def _from_pairs(self, subsets: Ints) -> Floats:
        doubled: Floats = self._cosines[subsets[:, :, None], subsets[:, None, :]].sum(axis=(1, 2))
        return doubled / 2

    def _from_sums(self, subsets: Ints) -> Floats:
        """Uses ‖Σu‖² = Σ‖u‖² + 2·(sum over pairs)."""
        from scipy.sparse import csr_array  # slow to import, seldom needed

        rows, count = subsets.shape
        members = csr_array(
            (np.ones(subsets.size), subsets.ravel(), np.arange(0, subsets.size + 1, count)),
            (rows, len(self.unit_vectors)),
        )
        doubled: Floats = np.square(members @ self.unit_vectors).sum(axis=1) - self._squares[subsets].sum(axis=1)
        return doubled / 2

    @cached_property
    def _squares(self) -> Floats:
        """The squared length of each vector: 1 up to rounding, or 0."""
        squares: Floats = np.square(self.unit_vectors).sum(axis=1)
        return squares

    @cached_property
    def _cosines(self) -> Floats:
        """The cosines of all pairs, with 0 on the diagonal."""
        cosines: Floats = self.unit_vectors @ self.unit_vectors.T
        np.fill_diagonal(cosines, 0.0)
        return cosines
