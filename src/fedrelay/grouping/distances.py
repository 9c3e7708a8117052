"""Distances τ(u, v): how well a client v complements a group u. Greedy grouping takes the client with the highest.

Papers: R. Zaccone et al., FedSeq, ICPR 2022; A. Silvi et al., IEEE Access 2024 (norm-cosine, from Task2Vec).

Rule:

    euclidean     ‖u − v‖₂
    cosine        1 − u·v / (‖u‖ ‖v‖)
    norm-cosine   the cosine distance of u/(u + v + 1e-8) and v/(u + v + 1e-8), element by element
    kl            1 − KL((u + v)/2 ‖ uniform)
    gini          1 − Σ ((u + v)/2)²
    wasserstein   W₁ of the values of u and those of v, whichever class they belong to

kl and gini need class probabilities, norm-cosine vectors without negative entries. The last one compares sorted values,
so that two clients with different classes can be equal to it: weak by construction.

Deviations: the cosine distance to a vector of zeros is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
"""Of single or double precision; a result has the precision of its arguments."""

DistanceName = Literal["euclidean", "cosine", "norm-cosine", "kl", "gini", "wasserstein"]
Need = Literal["any vectors", "class probabilities", "vectors without negative entries"]


@dataclass(frozen=True)
class Distance:
    """A distance of one vector from each of many, and which vectors it is made for."""

    formula: Callable[[Floats, Floats], Floats]
    needs: Need = "any vectors"
    prepared: Callable[[Floats], Floats] = np.asarray
    """What the formula wants to see of a vector, or of all rows of a matrix."""

    def __call__(self, group: Floats, vectors: Floats) -> Floats:
        """τ(group, v) for every row v."""
        return self.formula(self.prepared(group), self.prepared(vectors))

    def accepts(self, *, probabilities: bool, non_negative: bool) -> bool:
        """Whether it can compare vectors of this kind."""
        return {
            "any vectors": True,
            "class probabilities": probabilities,
            "vectors without negative entries": non_negative,
        }[self.needs]


def _euclidean(group: Floats, vectors: Floats) -> Floats:
    gaps = vectors - group
    return np.sqrt(_products(gaps, gaps))


def _cosine(group: Floats, vectors: Floats) -> Floats:
    groups = np.broadcast_to(group, vectors.shape)
    norms = np.sqrt(_products(groups, groups) * _products(vectors, vectors))
    return 1 - np.divide(_products(groups, vectors), norms, out=np.zeros_like(norms), where=norms > 0)


def _norm_cosine(group: Floats, vectors: Floats) -> Floats:
    weights = 1 / (group + vectors + 1e-8)
    return _cosine(group * weights, vectors * weights)


def _kl(group: Floats, vectors: Floats) -> Floats:
    mixture = (group + vectors) / 2 + np.finfo(vectors.dtype).tiny  # so that 0 log 0 = 0
    entropy = -_products(mixture, np.log(mixture))
    return 1 - math.log(vectors.shape[1]) + entropy


def _gini(group: Floats, vectors: Floats) -> Floats:
    mixture = (group + vectors) / 2
    return 1 - _products(mixture, mixture)


def _wasserstein(group: Floats, vectors: Floats) -> Floats:
    gaps: Floats = np.abs(vectors - group).mean(axis=1)
    return gaps


def _products(left: Floats, right: Floats) -> Floats:
    """The scalar product of every row with its counterpart."""
    found: Floats = np.einsum("ij,ij->i", left, right)
    return found


DISTANCES: dict[DistanceName, Distance] = {
    "euclidean": Distance(_euclidean),
    "cosine": Distance(_cosine),
    "norm-cosine": Distance(_norm_cosine, needs="vectors without negative entries"),
    "kl": Distance(_kl, needs="class probabilities"),
    "gini": Distance(_gini, needs="class probabilities"),
    "wasserstein": Distance(_wasserstein, prepared=lambda vectors: np.sort(vectors, axis=-1)),
}
