"""Trimmed mean: of every value the smallest and the largest are left out.

Paper: D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates. ICML 2018.

Rule: for every coordinate on its own, the ⌊βm⌋ smallest and the ⌊βm⌋ largest of m values are cut off, the others are
averaged, all routes alike. Up to ⌊βm⌋ arbitrary models do no harm.

Deviations: it joins models, not gradients. A β > 0 that cuts nobody off, ⌊βm⌋ = 0, is refused; where m grows with the
rounds, the last round decides. Models that are not finite are left out first and do not count in m. Buffers are treated
like parameters, integer counters take their lower median.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pydantic import Field

from fedrelay.errors import SpecError
from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.robust import few, robust, trimmed_mean


class Trimmed(Merge):
    """The mean without extremes."""

    share: float = Field(0.2, ge=0, lt=0.5, description="share β of values cut off at each end")

    def check(self, models: Callable[[], int]) -> None:
        """Somebody has to be cut off, unless `share` says that nobody is."""
        count = models()
        if not self.share or how_many(self.share, count):
            return
        if count < 3:
            raise SpecError(f"trimmed-mean: cuts off both ends and needs at least 3 models in a round; {few(count)}")
        raise SpecError(
            f"merge.share: {self.share:g} of {count} models cuts nobody off, which is the plain mean; "
            f"allowed: at least {math.ceil(1e3 / count) / 1e3:g} here, or 0 to say so"
        )

    def apply(self, home: MergeInput) -> Merged:
        """Sort, cut and average."""
        return robust(home, "uniform", lambda models, _: trimmed_mean(models, how_many(self.share, len(models))))


def how_many(share: float, models: int) -> int:
    """⌊βm⌋, with room for products such as 0.29·100 = 28.999…"""
    return min(math.floor(share * models + 1e-9), (models - 1) // 2)
