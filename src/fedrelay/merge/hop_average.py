"""The last cycle of WFSL's warm-up becomes one model.

Paper: M. Arafeh et al. WFSL, 2025 (see `warmup.wfsl` and the term `blend`, which computes the sums on the route).

Rule: the models m_1 … m_n of a cycle are combined as a moving average, w ← (1 − α)m_j + αw, or averaged with equal
weights.

Deviations: buffers come from the last model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedrelay.merge.base import Merge, MergeInput, MergeResult


class HopAverage(Merge):
    """Combines the models that one route produced, hop by hop; of several routes it takes the last."""

    of: Literal["ema", "mean"] = Field("ema", description="the moving average, or the plain mean")

    def apply(self, inputs: MergeInput) -> MergeResult:
        arrival, trained = inputs.arrivals[-1], inputs.layout.trained_size
        weights = arrival.weights.clone()
        if self.of == "ema":
            weights[:trained] = arrival.payload["fold"][:trained]
        else:
            weights[:trained] = arrival.payload["sum"][:trained] / len(arrival.contributors)
        return MergeResult(weights)
