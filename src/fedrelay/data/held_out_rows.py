"""Which of a node's samples are held out for testing: the same choice for arrays, tables and datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.stratified_subset import stratified_indices
from fedrelay.rng import generator


def held_out_rows(
    samples: int, share: float, seed: int = 1, *, labels: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the samples to train on, ascending, and of those that are held out.

    Args:
        samples: How many there are.
        share: The share to hold out; share × samples is rounded down.
        seed: Seed of the choice.
        labels: The class of each sample, to hold out the same share of every class; None if samples have no class, or
            it is not known without reading them.
    """
    rng, count = generator(seed, "hold out"), int(share * samples)
    if labels is None:
        held_out, rest = np.split(rng.permutation(samples), [count])
        return np.sort(rest), held_out
    held_out = stratified_indices(labels, count, rng)
    return np.setdiff1d(np.arange(samples), held_out), held_out
