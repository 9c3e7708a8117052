"""Inverse distance aggregation (IDA): models far from the mean count less.

Paper: Y. Yeganeh, A. Farshad, N. Navab, S. Albarqouni. Inverse Distance Aggregation for Federated Learning with Non-IID
Data. MICCAI workshop on Distributed and Collaborative Learning 2020.

Rule: pᵢ ∝ 1/(‖θᵢ − θ̄‖ + ε), where θ̄ is the plain mean of all arrivals. With `weights: samples` (IDA + FedAvg) pᵢ is
multiplied by the route's samples. Two models are always equally far from their mean. A model that equals the mean gets
nearly all the weight.

Deviations: the norm is L1, with L2 as an option; it is not certain which one the authors used. INTRAC, a variant that
divides by training accuracy, is left out, because an arrival has no accuracy. Distances use parameters only; buffers
take the mean weighted by samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import Weights, precise_mean, route_weights, with_trained_part


class Ida(Merge):
    """The mean, weighted by the inverse distance to the plain mean."""

    norm: Literal["l1", "l2"] = Field("l1", description="norm of the distance")
    epsilon: float = Field(1e-8, gt=0, description="added to every distance")
    weights: Weights = Field(
        "uniform", description="samples: multiply the weight of a route by its samples; uniform: do not"
    )

    def apply(self, inputs: MergeInput) -> MergeResult:
        by_route = route_weights(inputs.arrivals, self.weights)
        if sum(by_route) == 0:
            return MergeResult(inputs.global_model.clone())
        models = [arrival.weights[: inputs.layout.trained_size] for arrival in inputs.arrivals]
        distances = distances_to_mean(models, 1 if self.norm == "l1" else 2)
        weights = inverse_weights(distances, by_route, self.epsilon)
        trained = precise_mean(models, weights)
        return MergeResult(with_trained_part(inputs, trained, route_weights(inputs.arrivals, "samples")))


def distances_to_mean(models: Sequence[Tensor], order: int) -> list[float]:
    """The distance of each model from the plain mean."""
    centre = precise_mean(models, [1] * len(models))
    return [torch.linalg.vector_norm(model - centre, order).item() for model in models]


def inverse_weights(distances: Sequence[float], weights: Sequence[float], epsilon: float) -> list[float]:
    """Weights divided by distance, normalised to sum 1."""
    raw = [weight / (distance + epsilon) for distance, weight in zip(distances, weights, strict=True)]
    return [weight / sum(raw) for weight in raw]
