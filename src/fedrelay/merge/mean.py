"""The mean of FedAvg, weighted by samples or uniform.

Paper: B. McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. AISTATS 2017.

Rule: w = Σ pᵢ θᵢ with pᵢ ∝ the samples of route i, or pᵢ equal (`weights: uniform`). The samples of a route are the
sum of its clients' numbers of samples over all accepted hops: a client with two hops counts twice, and the number of
epochs makes no difference. Sums are computed in float64. Floating-point buffers take the same mean, integer counters
their maximum.

Deviations: none. If no route has samples, the global model does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import Arrival

Weights = Literal["samples", "uniform"]

SUMMED_AT_ONCE = 2**17
"""Values of a model that are summed at once: as float64 they fit into a core's cache."""


class Mean(Merge):
    """The mean of all arrivals."""

    weights: Weights = Field("samples", description="weight of each route: by its samples, or uniform")

    def apply(self, inputs: MergeInput) -> MergeResult:
        return MergeResult(mean_of_arrivals(inputs, route_weights(inputs.arrivals, self.weights)))


def route_weights(arrivals: Sequence[Arrival], weights: Weights) -> list[float]:
    """The weight of each route, not normalised."""
    return [arrival.samples if weights == "samples" else 1 for arrival in arrivals]


def mean_of_arrivals(inputs: MergeInput, weights: Sequence[float]) -> Tensor:
    """The weighted mean of all arrivals, or a copy of the global model if all weights are 0."""
    if sum(weights) == 0:
        return inputs.global_model.clone()
    return weighted_mean([arrival.weights for arrival in inputs.arrivals], weights, inputs.layout)


def weighted_mean(models: Sequence[Tensor], weights: Sequence[float], layout: FlatLayout) -> Tensor:
    """The weighted mean of models; integer counters take their maximum."""
    merged = torch.empty_like(models[0], dtype=layout.dtype)
    for part, mean in _mean_by_parts(models, weights):
        merged[part] = mean
    if layout.float_size < layout.size:
        merged[layout.float_size :] = torch.stack([model[layout.float_size :] for model in models]).amax(0)
    return merged


def precise_mean(models: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The weighted mean of tensors, in float64."""
    total = torch.empty_like(models[0], dtype=torch.float64)
    for part, mean in _mean_by_parts(models, weights):
        total[part] = mean
    return total


def _mean_by_parts(models: Sequence[Tensor], weights: Sequence[float]) -> Iterator[tuple[slice, Tensor]]:
    """The weighted mean in float64, part by part: a whole model in float64 would take as much memory as two."""
    for begin in range(0, len(models[0]), SUMMED_AT_ONCE):
        part = slice(begin, begin + SUMMED_AT_ONCE)
        total = torch.zeros_like(models[0][part], dtype=torch.float64)
        for model, weight in zip(models, weights, strict=True):
            total.add_(model[part], alpha=weight)
        yield part, total.div_(sum(weights))


def with_trained_part(inputs: MergeInput, trained: Tensor, weights: Sequence[float]) -> Tensor:
    """A new model with the given trained part; buffers take the weighted mean."""
    merged = mean_of_arrivals(inputs, weights)
    merged[: inputs.layout.trained_size] = trained
    return merged
