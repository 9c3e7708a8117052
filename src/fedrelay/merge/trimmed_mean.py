"""Trimmed mean: the smallest and largest values of each coordinate are left out.

Paper: D. Yin, Y. Chen, K. Ramchandran, P. Bartlett. Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates. ICML 2018.

Rule: for each coordinate separately, the ⌊βm⌋ smallest and the ⌊βm⌋ largest of m values are cut off. The others are
averaged with equal weights. Up to ⌊βm⌋ arbitrary models do no harm.

Deviations: it merges models, not gradients. A β > 0 that cuts nothing off, ⌊βm⌋ = 0, is refused; if m grows with the
rounds, the last round decides. Models with non-finite values are left out first and do not count in m. Buffers are
treated like parameters; integer counters take their lower median.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pydantic import Field

from fedrelay.errors import SpecError
from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.robust_statistics import merge_finite, too_few_models, trimmed_mean


class TrimmedMean(Merge):
    """The mean without extremes."""

    share: float = Field(0.2, ge=0, lt=0.5, description="share β of the values that is cut off at each end")

    def check_arrival_count(self, count_arrivals_in_last_round: Callable[[], int]) -> None:
        count = count_arrivals_in_last_round()
        if not self.share or cut_count(self.share, count):
            return
        if count < 3:
            raise SpecError(f"trimmed-mean: needs at least 3 models in a round; {too_few_models(count)}")
        raise SpecError(
            f"merge.share: {self.share:g} of {count} models is less than one model, so nothing would be cut off; "
            f"set at least {math.ceil(1e3 / count) / 1e3:g}, or 0 for the plain mean"
        )

    def apply(self, inputs: MergeInput) -> MergeResult:
        return merge_finite(
            inputs, "uniform", lambda models, _: trimmed_mean(models, cut_count(self.share, len(models)))
        )


def cut_count(share: float, models: int) -> int:
    """⌊βm⌋, guarded against rounding such as 0.29·100 = 28.999…"""
    return min(math.floor(share * models + 1e-9), (models - 1) // 2)
