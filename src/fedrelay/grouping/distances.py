"""Distances τ(u, v): how much a client v differs from a group u. Greedy grouping takes the client with the largest.

Papers: R. Zaccone et al., FedSeq, ICPR 2022; A. Silvi et al., IEEE Access 2024 (norm-cosine, from Task2Vec).

Rule:

    euclidean     ‖u − v‖₂
    cosine        1 − u·v / (‖u‖ ‖v‖)
    norm-cosine   the cosine distance of u/(u + v + 1e-8) and v/(u + v + 1e-8), element by element
    kl            1 − KL((u + v)/2 ‖ uniform)
    gini          1 − Σ ((u + v)/2)²
    wasserstein   W₁ of the sorted values of u and of v, regardless of their class

kl and gini need class probabilities; norm-cosine needs vectors without negative entries. wasserstein compares sorted
values, so two clients with different classes can have distance 0: it is weak by construction.

Deviations: the cosine distance to a zero vector is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
"""Single or double precision; a result has the precision of its arguments."""

DistanceName = Literal["euclidean", "cosine", "norm-cosine", "kl", "gini", "wasserstein"]
Need = Literal["any vectors", "class probabilities", "vectors without negative entries"]


@dataclass(frozen=True)
class Distance:
    """The distance of one vector from each of many, and which vectors it needs."""

    formula: Callable[[Floats, Floats], Floats]
    needs: Need = "any vectors"
    prepare: Callable[[Floats], Floats] = np.asarray
    """Applied to vectors, or to the rows of a matrix, before `formula`."""

    def __call__(self, group: Floats, vectors: Floats) -> Floats:
        """τ(group, v) for each row v."""
        return self.formula(self.prepare(group), self.prepare(vectors))

    def accepts(self, *, probabilities: bool, non_negative: bool) -> bool:
        """Whether it can compare vectors of this kind."""
        return {
            "any vectors": True,
            "class probabilities": probabilities,
            "vectors without negative entries": non_negative,
        }[self.needs]


def _euclidean(group: Floats, vectors: Floats) -> Floats:
    gaps = vectors - group
    return np.sqrt(_row_products(gaps, gaps))


def _cosine(group: Floats, vectors: Floats) -> Floats:
    groups = np.broadcast_to(group, vectors.shape)
    norms = np.sqrt(_row_products(groups, groups) * _row_products(vectors, vectors))
    return 1 - np.divide(_row_products(groups, vectors), norms, out=np.zeros_like(norms), where=norms > 0)


def _norm_cosine(group: Floats, vectors: Floats) -> Floats:
    weights = 1 / (group + vectors + 1e-8)
    return _cosine(group * weights, vectors * weights)


def _kl(group: Floats, vectors: Floats) -> Floats:
    mixture = (group + vectors) / 2 + np.finfo(vectors.dtype).tiny  # so that 0 log 0 = 0
    entropy = -_row_products(mixture, np.log(mixture))
    return 1 - math.log(vectors.shape[1]) + entropy


def _gini(group: Floats, vectors: Floats) -> Floats:
    mixture = (group + vectors) / 2
    return 1 - _row_products(mixture, mixture)


def _wasserstein(group: Floats, vectors: Floats) -> Floats:
    gaps: Floats = np.abs(vectors - group).mean(axis=1)
    return gaps


def _row_products(left: Floats, right: Floats) -> Floats:
    """The dot product of each row with its counterpart."""
    products: Floats = np.einsum("ij,ij->i", left, right)
    return products


DISTANCES: dict[DistanceName, Distance] = {
    "euclidean": Distance(_euclidean),
    "cosine": Distance(_cosine),
    "norm-cosine": Distance(_norm_cosine, needs="vectors without negative entries"),
    "kl": Distance(_kl, needs="class probabilities"),
    "gini": Distance(_gini, needs="class probabilities"),
    "wasserstein": Distance(_wasserstein, prepare=lambda vectors: np.sort(vectors, axis=-1)),
}
