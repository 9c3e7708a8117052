"""The model of the last route becomes the global model; nothing is averaged.

Paper: none; used where there is a single route, as in FedCyclic, centralised training and warm-ups.

Rule: w = θ_m, the model of the last of m routes in the order of the plan, with its buffers.

Deviations: none.
"""

from __future__ import annotations

from fedrelay.merge.base import Merge, MergeInput, MergeResult


class LastRoute(Merge):
    """Takes the output of the last route."""

    def apply(self, inputs: MergeInput) -> MergeResult:
        return MergeResult(inputs.arrivals[-1].weights.clone())
