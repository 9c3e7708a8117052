"""How much two methods differ, seed by seed, and which of several differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.05
"""How likely it may be to call any difference more than chance that is none."""


@dataclass(frozen=True)
class PairedDifference:
    """The differences of two methods, one for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; not known with a single seed: infinite."""
        return stdev(self.values) / math.sqrt(len(self.values)) if len(self.values) > 1 else math.inf

    @property
    def p_value(self) -> float:
        """How likely so large a mean is if there is no difference: two-sided t-test with n − 1 degrees of freedom.

        >>> round(PairedDifference((0.05, 0.1, 0.05)).p_value, 3)
        0.057
        """
        from scipy.special import stdtr  # slow to import, seldom needed

        if self.standard_error == 0:
            return 0.0 if self.mean else 1.0
        return float(2 * stdtr(len(self.values) - 1, -abs(self.mean) / self.standard_error))


def more_than_chance(differences: Sequence[PairedDifference], level: float = LEVEL) -> list[bool]:
    """Which differences are more than chance, with Holm's correction for their number.

    Args:
        differences: All that are looked at together.
        level: How likely it may be that any of them is wrongly called more than chance.

    >>> more_than_chance([PairedDifference((1.0, 1.1, 1.0)), PairedDifference((1.0, -1.0, 0.5))])
    [True, False]
    """
    found = [False] * len(differences)
    p_values = [each.p_value if len(each.values) > 1 else 1.0 for each in differences]
    for rank, place in enumerate(sorted(range(len(differences)), key=p_values.__getitem__)):
        if p_values[place] > level / (len(differences) - rank):
            break
        found[place] = True
    return found
