"""Random groups: clients in random order fill one group after another.

Paper: the baseline grouping of R. Zaccone et al., FedSeq, ICPR 2022.

Rule: shuffle the clients; each group takes the next ones until it is complete.

Deviations: none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.group_filling import GroupSizeBounds, fill_groups
from fedrelay.routes.base import Groups


def random_groups(sizes: NDArray[np.int64], bounds: GroupSizeBounds, rng: np.random.Generator) -> Groups:
    """Random groups; only the number of samples matters."""
    return fill_groups(rng.permutation(len(sizes)), sizes, bounds)
