"""Which of a client's samples are held out: the same rule, and the same draw, in simulations and at nodes.

Rule: share × samples is rounded up, so that every client with at least two samples is evaluated, and at least one
sample stays for training. Samples are drawn class by class where each has a label. The draw depends on the seed and on
the client's own samples alone, because a node knows neither its number nor the other clients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.stratified_subset import stratified_indices
from fedrelay.rng import generator

NODE_SEED = 1
"""Nodes do not know the seed of a run: they hold out what simulations with this seed do."""

_ROUNDING = 1e-9
"""Share × samples may be a whole number plus rounding, such as 0.1 · 3 · 10."""


def held_out_count(samples: int, share: float) -> int:
    """How many of a client's samples are held out."""
    return min(math.ceil(share * samples - _ROUNDING), max(samples - 1, 0))


def held_out_rows(
    samples: int, share: float, seed: int = NODE_SEED, *, labels: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the samples to train on, and of those that are held out, both ascending.

    Args:
        samples: How many there are.
        share: The share to hold out.
        seed: Seed of the choice.
        labels: The target of each sample, to hold out the same share of every class, if targets are classes; None if
            they are not known without reading the samples.
    """
    rng, count = generator(seed, "hold out"), held_out_count(samples, share)
    if labels is None or labels.dtype.kind not in "biu":
        held_out = np.sort(rng.permutation(samples)[:count])
    else:
        held_out = stratified_indices(labels, count, rng)
    return np.setdiff1d(np.arange(samples), held_out), held_out
