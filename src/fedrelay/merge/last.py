"""The model that arrived last becomes the global model; nothing is averaged.

Used by methods with a single route (FedCyclic, centralised training). Deviations: none.
"""

from __future__ import annotations

from fedrelay.merge.base import Merge, MergeInput, MergeResult


class Last(Merge):
    """Takes the output of the last route."""

    def apply(self, inputs: MergeInput) -> MergeResult:
        return MergeResult(inputs.arrivals[-1].weights.clone())
