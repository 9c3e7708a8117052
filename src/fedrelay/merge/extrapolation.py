"""FedExP: the server goes further in the direction of the mean change, the more the changes of routes differ.

Paper: D. Jhunjhunwala, S. Wang, G. Joshi. FedExP: Speeding Up Federated Averaging via Extrapolation. ICLR 2023.

Rule: with Δᵢ = θᵢ − w and Δ̄ = Σ pᵢΔᵢ, w ← w + ηΔ̄ with η = max(1, Σ pᵢ‖Δᵢ‖² / (2(‖Δ̄‖² + ε))). The paper evaluates the
mean of the last two models, because single ones oscillate: `fedexp` sets `server.average.window` to 2.

Deviations: pᵢ ∝ samples by default, as in the mean of FedAvg; the paper's clients have equal weights (`weights:
uniform`). On a chain, Δᵢ is the change of the whole route. Norms are of parameters only; buffers take the plain mean.
If no route has samples, the global model does not change.
"""

from __future__ import annotations

import torch
from pydantic import Field

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import Weights, precise_mean, route_weights, with_trained_part


class Extrapolation(Merge):
    """The mean change, lengthened."""

    weights: Weights = Field("samples", description="weight of each route: by its samples, or uniform")
    epsilon: float = Field(
        1e-3, gt=0, description="ε, added to the squared length of the mean change; the larger, the shorter the steps"
    )

    def apply(self, inputs: MergeInput) -> MergeResult:
        weights = route_weights(inputs.arrivals, self.weights)
        if sum(weights) == 0:
            return MergeResult(inputs.global_model.clone())
        trained = inputs.layout.trained_size
        start = inputs.global_model[:trained].double()
        models = [arrival.weights[:trained] for arrival in inputs.arrivals]
        change = precise_mean(models, weights) - start
        squares = [float((model - start).square().sum()) for model in models]
        mean_square = sum(map(float.__mul__, squares, map(float, weights))) / sum(weights)
        step = max(1.0, mean_square / (2 * (float(torch.dot(change, change)) + self.epsilon)))
        return MergeResult(with_trained_part(inputs, start + step * change, weights))
