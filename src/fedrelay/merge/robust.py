"""What robust merges have in common.

Buffers are treated like parameters, or they would be the way in for an attacker; integer counters take their lower
median. A model with a value that is not finite is left out as if it had not come home; when none that counts is
left, the global model stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.local.arrival import Arrival
from fedrelay.merge.base import Merged, MergeInput
from fedrelay.merge.mean import Weights, counts

Rule = Callable[[Sequence[Tensor], Sequence[float]], Tensor]
"""From the floating parts of models and how much each counts to one in double precision."""

_WIDTH = 4096
"""How many values of every model are looked at together: few enough for the cache and for memory."""


def robust(home: MergeInput, weights: Weights, rule: Rule) -> Merged:
    """Join the finite arrivals by a rule."""
    arrivals = finite(home.arrivals)
    how_much = counts(arrivals, weights)
    if sum(how_much) == 0:
        return Merged(home.current.clone())
    split = home.layout.counters
    merged = torch.empty_like(home.current)
    merged[:split] = rule([arrival.weights[:split] for arrival in arrivals], how_much)
    merged[split:] = torch.stack([arrival.weights[split:] for arrival in arrivals]).median(0).values
    return Merged(merged)


def few(models: int) -> str:
    """What to say where a rule needs more models than come home."""
    come = "comes" if models == 1 else "come"
    return f"here {models} {come} home; raise fraction or data.clients, or choose another merge"


def finite(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Those whose every value is finite."""
    return [arrival for arrival in arrivals if arrival.weights.isfinite().all()]


def trimmed_mean(models: Sequence[Tensor], cut: int) -> Tensor:
    """The mean of every value without its `cut` smallest and largest, in double precision."""
    parts = [_sorted(stack)[:, cut : len(models) - cut].mean(axis=1) for stack in stacks(models)]
    return torch.from_numpy(np.concatenate(parts))


def median(models: Sequence[Tensor]) -> Tensor:
    """The median of every value; of an even number of models the mean of the two in the middle."""
    return trimmed_mean(models, (len(models) - 1) // 2)


def stacks(models: Sequence[Tensor]) -> Iterator[Tensor]:
    """All models side by side, `[models, values]` in double precision, a bounded number of values at a time."""
    for start in range(0, len(models[0]), _WIDTH):
        yield torch.stack([model[start : start + _WIDTH] for model in models]).double()


def _sorted(stack: Tensor) -> NDArray[np.float64]:
    """`[values, models]`, each row in order; NumPy sorts short rows that lie together many times faster than torch."""
    return np.sort(stack.T.contiguous().numpy(), axis=1)
