"""Random groups: clients in random order fill one group after another.

Paper: the baseline grouping of R. Zaccone et al., FedSeq, ICPR 2022.

Deviations: when the last group is too small and no other group has room, it is kept (the authors' code stops).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.base import Grouping
from fedrelay.rng import generator
from fedrelay.routes.base import Groups


class RandomGroups(Grouping):
    """Groups that look at nothing but the number of samples."""

    def form(self, sizes: NDArray[np.int64], seed: int) -> Groups:
        """Shuffle the clients that hold data and fill groups in that order."""
        holders = np.flatnonzero(sizes)
        return self.fill(generator(seed, "grouping").permutation(holders).tolist(), sizes)
