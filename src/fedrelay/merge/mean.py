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
from fedrelay.merge.base import Merge
from fedrelay.models.layout import Layout


class Mean(Merge):
    """Average all arrivals."""

    weights: Literal["samples", "uniform"] = Field("samples", description="how much each route counts")

    def apply(self, current: Tensor, arrivals: Sequence[Arrival], layout: Layout) -> Tensor:
        """The weighted sum of all arrivals."""
        counts = [arrival.samples if self.weights == "samples" else 1 for arrival in arrivals]
        if sum(counts) == 0:
            return current.clone()
        return weighted_mean([arrival.weights for arrival in arrivals], counts, layout)


def weighted_mean(models: Sequence[Tensor], counts: Sequence[float], layout: Layout) -> Tensor:
    """The mean of models weighted by counts; counters by maximum."""
    total = torch.zeros(layout.size, dtype=torch.float64)
    for model, count in zip(models, counts, strict=True):
        total.add_(model, alpha=count)  # one after another: a stack in float64 would take several times the memory
    merged = total.div_(sum(counts)).to(layout.dtype)
    if layout.counters < layout.size:
        merged[layout.counters :] = torch.stack([model[layout.counters :] for model in models]).amax(0)
    return merged
