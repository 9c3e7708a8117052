"""What robust merges have in common.

Buffers are treated like parameters, because an attacker could use them otherwise. Integer counters take their lower
median. A model with a non-finite value is left out as if it had not arrived. If no model with a positive weight is
left, the global model does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from fedrelay.merge.base import MergeInput, MergeResult
from fedrelay.merge.mean import Weights, route_weights
from fedrelay.routes.arrival import Arrival

Rule = Callable[[Sequence[Tensor], Sequence[float]], Tensor]
"""(floating-point parts of models, their weights) → merged values in float64."""

_WIDTH = 4096
"""Coordinates that are processed together: few enough for the cache and for memory."""


def merge_finite(inputs: MergeInput, weights: Weights, rule: Rule) -> MergeResult:
    """Merge the finite arrivals by a rule."""
    arrivals = finite_arrivals(inputs.arrivals)
    by_route = route_weights(arrivals, weights)
    if sum(by_route) == 0:
        return MergeResult(inputs.global_model.clone())
    split = inputs.layout.float_size
    merged = torch.empty_like(inputs.global_model)
    merged[:split] = rule([arrival.weights[:split] for arrival in arrivals], by_route)
    merged[split:] = torch.stack([arrival.weights[split:] for arrival in arrivals]).median(0).values
    return MergeResult(merged)


def too_few_models(count: int) -> str:
    """The hint for a merge that needs more models than arrive."""
    return f"this experiment has {count}; raise fraction or data.clients, or choose another merge"


def finite_arrivals(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The arrivals whose values are all finite."""
    return [arrival for arrival in arrivals if arrival.weights.isfinite().all()]


def trimmed_mean(models: Sequence[Tensor], cut: int) -> Tensor:
    """The mean of each coordinate without its `cut` smallest and largest values, in float64."""
    # NumPy sorts short contiguous rows many times faster than torch.
    rows = (np.sort(block.T.contiguous().numpy(), axis=1) for block in coordinate_blocks(models))
    parts = [each[:, cut : len(models) - cut].mean(axis=1) for each in rows]
    return torch.from_numpy(np.concatenate(parts))


def median(models: Sequence[Tensor]) -> Tensor:
    """The median of each coordinate; the mean of the middle two if the number of models is even."""
    return trimmed_mean(models, (len(models) - 1) // 2)


def coordinate_blocks(models: Sequence[Tensor]) -> Iterator[Tensor]:
    """Blocks of coordinates of all models, `[models, coordinates]`, in float64."""
    for start in range(0, len(models[0]), _WIDTH):
        yield torch.stack([model[start : start + _WIDTH] for model in models]).double()
