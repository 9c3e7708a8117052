"""How good a choice of clients is: models that point the same way, and many samples.

Paper: M. Arafeh et al., WFSL, 2025, objectives O2 and O3. O2 is the sum of the cosine over all pairs of chosen clients,
O3 the sum of their samples; both are brought to the same scale by (x − min) / (max − min) and weighed by W1 and W2.

Deviations: a pair counts once, which changes no choice. A vector of zeros has the cosine 0 with every other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_COMPARED = 3000
"""Up to so many clients, the cosines of all pairs are kept."""

_CHUNK = 1 << 23


@dataclass(frozen=True)
class Scale:
    """What the objectives are measured by: their lowest values and their ranges."""

    low: Floats
    span: Floats

    @classmethod
    def of(cls, objectives: Floats) -> Scale:
        """The scale on which the rows lie between 0 and 1."""
        low = objectives.min(axis=0)
        return cls(low, objectives.max(axis=0) - low)

    def score(self, objectives: Floats, weights: tuple[float, float]) -> Floats:
        """F = W1·norm(O2) + W2·norm(O3) of every row; an objective that is the same for all counts nothing."""
        flat = self.span <= 0
        normed = np.where(flat, 0.0, (objectives - self.low) / np.where(flat, 1.0, self.span))
        score: Floats = normed @ np.asarray(weights)
        return score


@dataclass(frozen=True)
class Objectives:
    """Measures choices, each a row of client numbers."""

    units: Floats
    """The clients' vectors, each of length 1 (or 0)."""

    sizes: Ints

    @classmethod
    def of(cls, vectors: Floats, sizes: Ints) -> Objectives:
        """From vectors of any length."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return cls(vectors / np.where(lengths > 0, lengths, 1.0), sizes)

    def measure(self, choices: Ints) -> Floats:
        """O2 and O3 of every row; [rows, 2]."""
        return np.stack([self._similarity(choices), self.sizes[choices].sum(axis=1)], axis=1)

    def _similarity(self, choices: Ints) -> Floats:
        """The sum of the cosine over all pairs, a few rows at a time so that memory stays bounded."""
        count, length = choices.shape[1], self.units.shape[1]
        by_pairs = len(self.units) <= MOST_COMPARED and count <= length
        rows = max(1, _CHUNK // (count**2 if by_pairs else length))
        chunks = (choices[start : start + rows] for start in range(0, len(choices), rows))
        return np.concatenate([self._from_pairs(each) if by_pairs else self._from_sums(each) for each in chunks])

    def _from_pairs(self, choices: Ints) -> Floats:
        """Looked up."""
        doubled: Floats = self._cosines[choices[:, :, None], choices[:, None, :]].sum(axis=(1, 2))
        return doubled / 2

    def _from_sums(self, choices: Ints) -> Floats:
        """From ‖Σu‖² = Σ‖u‖² + 2·(the sum over pairs)."""
        from scipy.sparse import csr_array  # slow to import, seldom needed

        rows, count = choices.shape
        members = csr_array(
            (np.ones(choices.size), choices.ravel(), np.arange(0, choices.size + 1, count)), (rows, len(self.units))
        )
        doubled: Floats = np.square(members @ self.units).sum(axis=1) - self._squares[choices].sum(axis=1)
        return doubled / 2

    @cached_property
    def _squares(self) -> Floats:
        """The squared length of every vector: 1 but for rounding, or 0."""
        squares: Floats = np.square(self.units).sum(axis=1)
        return squares

    @cached_property
    def _cosines(self) -> Floats:
        """Of all pairs, with 0 for a client and itself."""
        cosines: Floats = self.units @ self.units.T
        np.fill_diagonal(cosines, 0.0)
        return cosines
