"""A fixed test part for data sets that have none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.rng import generator

TEST_SHARE = 0.2
_SEED = 0


def stratified_split(strata: NDArray[np.int64], purpose: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted indices of the train and the test part; a fifth of each stratum is for testing.

    The split depends only on the strata and the purpose, so it is the same on every machine.
    """
    test = np.zeros(len(strata), bool)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        shuffled = generator(_SEED, purpose, int(stratum)).permutation(members)
        test[shuffled[: round(TEST_SHARE * len(members))]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)
