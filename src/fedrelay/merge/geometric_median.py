"""Geometric median (RFA): the model with the smallest sum of distances to all arrivals.

Paper: K. Pillutla, S. M. Kakade, Z. Harchaoui. Robust Aggregation for Federated Learning. IEEE Transactions on Signal
Processing 70, 2022.

Rule: the smoothed Weiszfeld algorithm. z ← Σ βᵢ θᵢ / Σ βᵢ with βᵢ = pᵢ / max(ν, ‖z − θᵢ‖) and pᵢ ∝ samples, or pᵢ equal
(`weights: uniform`), until z moves by less than ν/1000, or for at most `iterations` steps. Models with less than half
of the total weight may be arbitrary. If clients may lie about their number of samples, use `weights: uniform`.

Deviations: it starts from the coordinate-wise median instead of the mean, because a single huge model can move the mean
far away. Models with non-finite values are left out first; if no other model has samples, the global model does not
change. Buffers are treated like parameters; integer counters take their lower median.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import Weights, precise_mean
from fedrelay.merge.robust_statistics import median, merge_finite


class GeometricMedian(Merge):
    """The point with the smallest sum of distances to all models."""

    weights: Weights = Field("samples", description="weight of each route: by its samples, or uniform")
    smoothing: float = Field(1e-6, gt=0, description="ν; distances below it count as ν")
    iterations: int = Field(30, ge=1, description="largest number of steps")

    def apply(self, inputs: MergeInput) -> MergeResult:
        def rule(models: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
            return geometric_median(models, weights, self.smoothing, self.iterations)

        return merge_finite(inputs, self.weights, rule)


def geometric_median(models: Sequence[Tensor], weights: Sequence[float], smoothing: float, iterations: int) -> Tensor:
    """The smoothed Weiszfeld algorithm, in float64."""
    point = median(models)
    for _ in range(iterations):
        distances = [torch.linalg.vector_norm(model - point).item() for model in models]
        betas = [weight / max(smoothing, distance) for weight, distance in zip(weights, distances, strict=True)]
        previous, point = point, precise_mean(models, betas)
        if torch.linalg.vector_norm(point - previous) < smoothing / 1000:
            break
    return point
