"""Coordinate-wise median.

Paper: D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates. ICML 2018.

Rule: each coordinate takes the median of its values over all routes, with equal weights. If the number of values is
even, it takes the mean of the middle two. Fewer than half of the models may be arbitrary.

Deviations: it merges models, not gradients. Models with non-finite values are left out first. Buffers are treated like
parameters; integer counters take their lower median.
"""

from __future__ import annotations

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.robust_statistics import median, merge_finite


class Median(Merge):
    """The median of each coordinate."""

    def apply(self, inputs: MergeInput) -> MergeResult:
        return merge_finite(inputs, "uniform", lambda models, _: median(models))
