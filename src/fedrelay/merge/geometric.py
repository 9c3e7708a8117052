"""Geometric median (RFA): the model with the least sum of distances to all arrivals.

Paper: K. Pillutla, S. M. Kakade, Z. Harchaoui. Robust Aggregation for Federated Learning. IEEE Transactions on Signal
Processing 70, 2022.

Rule: the smoothed Weiszfeld algorithm. z ← Σ βᵢ θᵢ / Σ βᵢ with βᵢ = pᵢ / max(ν, ‖z − θᵢ‖) and pᵢ ∝ samples, or pᵢ equal
(`weights: uniform`), until z moves by less than ν/1000 or the iterations are used up. Models that hold less than half
of all weight may be arbitrary; where clients may lie about their samples, weigh them equally.

Deviations: it starts from the coordinate-wise median instead of the mean, which one huge model can move far away.
Models that are not finite are left out first; when no other has samples, the global model stays as it is. Buffers are
treated like parameters, integer counters take their lower median.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import Weights, precise_mean
from fedrelay.merge.robust import median, robust


class GeometricMedian(Merge):
    """The point with the least sum of distances."""

    weights: Weights = Field("samples", description="how much each route counts")
    smoothing: float = Field(1e-6, gt=0, description="ν, the distance below which models count as equally close")
    iterations: int = Field(30, ge=1, description="bound on the steps towards the median")

    def apply(self, home: MergeInput) -> Merged:
        """Approach the median."""
        return robust(home, self.weights, self._median)

    def _median(self, models: Sequence[Tensor], counts: Sequence[float]) -> Tensor:
        return geometric_median(models, counts, self.smoothing, self.iterations)


def geometric_median(models: Sequence[Tensor], counts: Sequence[float], smoothing: float, iterations: int) -> Tensor:
    """The smoothed Weiszfeld algorithm, in double precision."""
    point = median(models)
    for _ in range(iterations):
        distances = [torch.linalg.vector_norm(model - point).item() for model in models]
        pulls = [count / max(smoothing, distance) for count, distance in zip(counts, distances, strict=True)]
        previous, point = point, precise_mean(models, pulls)
        if torch.linalg.vector_norm(point - previous) < smoothing / 1000:
            break
    return point
