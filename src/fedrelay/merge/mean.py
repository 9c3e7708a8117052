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
        """One matrix product over the stacked arrivals."""
        counts = [arrival.samples if self.weights == "samples" else 1 for arrival in arrivals]
        if sum(counts) == 0:
            return current.clone()
        return weighted_mean(torch.stack([arrival.weights for arrival in arrivals]), counts, layout)


def weighted_mean(models: Tensor, counts: Sequence[float], layout: Layout) -> Tensor:
    """The mean over the first axis of `[models, size]`, weighted by counts; counters by maximum."""
    shares = torch.tensor(counts, dtype=torch.float64)
    shares /= shares.sum()
    merged = (shares @ models.double()).to(models.dtype)
    if layout.counters < layout.size:
        merged[layout.counters :] = models[:, layout.counters :].amax(0)
    return merged
