"""The last cycle of WFSL's warm-up becomes one model.

Paper: M. Arafeh et al. WFSL, 2025 (see `warmup.wfsl` and the term `blend`, which does the sums on the way).

Rule: the models m_1 … m_n of a cycle are folded, w ← (1 − α)m_j + αw, or averaged with equal weights.

Deviations: what is not trained (buffers) comes from the last model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedrelay.merge.base import Merge, Merged, MergeInput


class FoldCycle(Merge):
    """What the models of one route add up to."""

    of: Literal["ema", "mean"] = Field("ema", description="the fold, or the plain mean")

    def apply(self, home: MergeInput) -> Merged:
        """Of the last route, like `last`."""
        arrival, trained = home.arrivals[-1], home.layout.trainable
        weights = arrival.weights.clone()
        if self.of == "ema":
            weights[:trained] = arrival.payload["fold"][:trained]
        else:
            weights[:trained] = arrival.payload["sum"][:trained] / len(arrival.contributors)
        return Merged(weights)
