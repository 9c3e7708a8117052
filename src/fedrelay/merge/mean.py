"""The weighted mean of FedAvg.

Paper: B. McMahan et al. Communication-Efficient Learning of Deep Networks from Decentralized Data. AISTATS 2017.

Rule: w = Σ pᵢ θᵢ with pᵢ ∝ samples seen on the route, or pᵢ equal (`weights: uniform`). Sums are taken in float64.
Floating buffers take the same mean, integer counters their maximum.

Deviations: none. When no route saw a sample, the global model stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.local.arrival import Arrival
from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.models.layout import FlatLayout

Weights = Literal["samples", "uniform"]


class Mean(Merge):
    """Average all arrivals."""

    weights: Weights = Field("samples", description="how much each route counts")

    def apply(self, home: MergeInput) -> Merged:
        """The weighted sum of all arrivals."""
        return Merged(mean(home, counts(home.arrivals, self.weights)))


def counts(arrivals: Sequence[Arrival], weights: Weights) -> list[float]:
    """How much each route counts."""
    return [arrival.samples if weights == "samples" else 1 for arrival in arrivals]


def mean(home: MergeInput, counts: Sequence[float]) -> Tensor:
    """The mean of all arrivals; the present model where nothing counts."""
    if sum(counts) == 0:
        return home.current.clone()
    return weighted_mean([arrival.weights for arrival in home.arrivals], counts, home.layout)


def weighted_mean(models: Sequence[Tensor], counts: Sequence[float], layout: FlatLayout) -> Tensor:
    """The mean of models weighted by counts; counters by maximum."""
    merged = precise_mean(models, counts).to(layout.dtype)
    if layout.counters < layout.size:
        merged[layout.counters :] = torch.stack([model[layout.counters :] for model in models]).amax(0)
    return merged


def precise_mean(models: Sequence[Tensor], counts: Sequence[float]) -> Tensor:
    """The mean of tensors weighted by counts, in double precision."""
    total = torch.zeros_like(models[0], dtype=torch.float64)
    for model, count in zip(models, counts, strict=True):
        total.add_(model, alpha=count)  # one after another: a stack in float64 would take several times the memory
    return total.div_(sum(counts))


def with_trained(home: MergeInput, trained: Tensor, counts: Sequence[float]) -> Tensor:
    """A new model with this trained part; everything else takes the mean."""
    merged = mean(home, counts)
    merged[: home.layout.trainable] = trained
    return merged
