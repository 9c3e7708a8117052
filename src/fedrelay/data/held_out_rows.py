"""Which of a node's samples are held out for testing: the same choice for arrays, tables and datasets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.rng import generator


def held_out_rows(samples: int, share: float, seed: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the samples to train on, ascending, and of those that are held out."""
    held_out, rest = np.split(generator(seed, "hold out").permutation(samples), [int(share * samples)])
    return np.sort(rest), held_out
