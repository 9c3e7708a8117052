"""Inverse distance aggregation (IDA): models far from the mean count less.

Paper: Y. Yeganeh, A. Farshad, N. Navab, S. Albarqouni. Inverse Distance Aggregation for Federated Learning with Non-IID
Data. MICCAI workshop on Distributed and Collaborative Learning 2020.

Rule: pᵢ ∝ 1/(‖θᵢ − θ̄‖ + ε), θ̄ being the plain mean of all arrivals; with `weights: samples` (IDA + FedAvg) pᵢ is
multiplied by the route's samples. Two models are always equally far; a model that is the mean takes nearly all.

Deviations: the norm is L1, or L2 as an option; which one the authors used is not certain. INTRAC, a variant that
divides by training accuracy, is left out: a route brings no accuracy home. Distances are those of parameters; buffers
take the mean by samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import Weights, counts, precise_mean, with_trained


class Ida(Merge):
    """The mean weighted by closeness to the plain mean."""

    norm: Literal["l1", "l2"] = Field("l1", description="how distance is measured")
    epsilon: float = Field(1e-8, gt=0, description="added to every distance")
    weights: Weights = Field("uniform", description="whether a route's samples count, too")

    def apply(self, home: MergeInput) -> Merged:
        """The mean with the weights of the rule; the present model where nothing counts."""
        how_much = counts(home.arrivals, self.weights)
        if sum(how_much) == 0:
            return Merged(home.current.clone())
        models = [arrival.weights[: home.layout.trainable] for arrival in home.arrivals]
        distances = distances_to_mean(models, 1 if self.norm == "l1" else 2)
        weights = inverse_weights(distances, how_much, self.epsilon)
        return Merged(with_trained(home, precise_mean(models, weights), counts(home.arrivals, "samples")))


def distances_to_mean(models: Sequence[Tensor], order: int) -> list[float]:
    """How far each model is from the plain mean."""
    centre = precise_mean(models, [1] * len(models))
    return [torch.linalg.vector_norm(model - centre, order).item() for model in models]


def inverse_weights(distances: Sequence[float], counts: Sequence[float], epsilon: float) -> list[float]:
    """Weights that fall with distance; their sum is 1."""
    raw = [count / (distance + epsilon) for distance, count in zip(distances, counts, strict=True)]
    return [weight / sum(raw) for weight in raw]
