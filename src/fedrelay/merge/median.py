"""Coordinate-wise median.

Paper: D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates. ICML 2018.

Rule: every coordinate takes the median of its values, all routes alike; of an even number of values the mean of the two
in the middle. Fewer than half of the models may be arbitrary.

Deviations: it joins models, not gradients. Models that are not finite are left out first. Buffers are treated like
parameters, integer counters take their lower median.
"""

from __future__ import annotations

from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.robust import median, robust


class Median(Merge):
    """The middle of every value."""

    def apply(self, home: MergeInput) -> Merged:
        """Sort and take the middle."""
        return robust(home, "uniform", lambda models, _: median(models))
