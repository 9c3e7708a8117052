"""FedDisco: routes whose classes differ much from the target count less.

Paper: R. Ye, M. Xu, J. Wang, C. Xu, S. Chen, Y. Wang. FedDisco: Federated Learning with Discrepancy-Aware
Collaboration. ICML 2023.

Rule: pᵢ ∝ max(0, nᵢ/Σn − a·dᵢ + b), where dᵢ is the distance of the route's class shares from the target, divided by
the sum over all routes: the KL divergence, the cosine distance, or the L1 or L2 norm of the difference. The target is
uniform, or the class shares of all clients together. Buffers take the same mean.

Clients upload their class counts, once.

Deviations: a route's class shares are those of all its clients pooled, each counted once however often it was visited.
When all distances are zero they stay zero, and when no weight is above zero those of FedAvg are used (the authors' code
would divide by zero in both cases). A route without labels is as good as the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import counts, mean

Floats = NDArray[np.float64]
Metric = Literal["kl", "cosine", "l1", "l2"]


class Disco(Merge):
    """The mean by samples and by closeness of classes."""

    needs_histograms: ClassVar[bool] = True
    a: float = Field(0.5, ge=0, description="how much distance from the target counts")
    b: float = Field(0.1, description="what every route gets on top")
    metric: Metric = Field("kl", description="how distance from the target is measured")
    target: Literal["uniform", "global"] = Field(
        "uniform", description="the ideal class shares: all equal, or those of all clients together"
    )

    def apply(self, home: MergeInput) -> Merged:
        """The mean with the weights of the rule."""
        histograms = [pooled(home, set(arrival.contributors)) for arrival in home.arrivals]
        memory = dict(home.memory)
        if self.target == "global" and "target" not in memory:  # the same at every merge, and costly for many clients
            memory["target"] = torch.from_numpy(shares(pooled(home, range(home.clients))))
        target = memory["target"].numpy() if self.target == "global" else shares(np.zeros_like(histograms[0]))
        distances = [distance(shares(found, target), target, self.metric) for found in histograms]
        weights = disco_weights(counts(home.arrivals, "samples"), distances, self.a, self.b)
        return Merged(mean(home, weights), memory)


def pooled(home: MergeInput, clients: Iterable[int]) -> NDArray[np.int64]:
    """How many labels of every class these clients have together."""
    together: NDArray[np.int64] = np.stack([home.histogram(client) for client in clients]).sum(axis=0)
    return together


def shares(histogram: NDArray[np.int64], otherwise: Floats | None = None) -> Floats:
    """The class shares of a histogram; of an empty one, others, or all equal."""
    if not histogram.any():
        return np.full(len(histogram), 1 / len(histogram)) if otherwise is None else otherwise
    found: Floats = histogram / histogram.sum()
    return found


def distance(found: Floats, target: Floats, metric: Metric) -> float:
    """How far class shares are from the target."""
    if metric == "kl":
        held = found > 0
        return max(0.0, float(np.sum(found[held] * np.log(found[held] / target[held]))))
    if metric == "cosine":
        return max(0.0, 1 - float(found @ target / np.sqrt((found @ found) * (target @ target))))
    return float(np.linalg.norm(found - target, ord=1 if metric == "l1" else 2))


def disco_weights(samples: Sequence[float], distances: Sequence[float], a: float, b: float) -> list[float]:
    """The weights of all routes; their sum is 1, or 0 where no route has samples."""
    if sum(samples) == 0:
        return [0.0] * len(samples)
    sizes = np.array(samples) / sum(samples)
    gaps = np.array(distances) / (sum(distances) or 1)
    raw = np.maximum(0, sizes - a * gaps + b)
    weights: list[float] = (raw / raw.sum() if raw.any() else sizes).tolist()
    return weights
