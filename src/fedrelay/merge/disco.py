"""FedDisco: routes whose class shares are far from the target get less weight.

Paper: R. Ye, M. Xu, J. Wang, C. Xu, S. Chen, Y. Wang. FedDisco: Federated Learning with Discrepancy-Aware
Collaboration. ICML 2023.

Rule: pᵢ ∝ max(0, nᵢ/Σn − a·dᵢ + b), where dᵢ is the distance of the route's class shares from the target, divided by
the sum over all routes: the KL divergence, the cosine distance, or the L1 or L2 norm of the difference. The target is
uniform, or the class shares of all clients together. Buffers take the same mean.

Clients upload their class counts once.

Deviations: a route's class shares are those of all its clients together; each client counts once, even if it has
several hops. If all distances are zero they stay zero, and if no weight is above zero, the weights of FedAvg are used
(the authors' code would divide by zero in both cases). A route without labels has distance 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import mean_of_arrivals, route_weights

Floats = NDArray[np.float64]
DistanceMetric = Literal["kl", "cosine", "l1", "l2"]


class Disco(Merge):
    """The mean, weighted by samples and by the distance of class shares from the target."""

    needs_class_counts: ClassVar[bool] = True
    a: float = Field(0.5, ge=0, description="weight of the distance from the target")
    b: float = Field(0.1, description="added to the weight of each route")
    metric: DistanceMetric = Field("kl", description="distance measure")
    target: Literal["uniform", "global"] = Field(
        "uniform", description="the target class shares: uniform, or global (those of all clients together)"
    )

    def apply(self, inputs: MergeInput) -> MergeResult:
        histograms = [pooled_histogram(inputs, set(arrival.contributors)) for arrival in inputs.arrivals]
        state = dict(inputs.state)
        if self.target == "global" and "target" not in state:  # never changes, and is costly for many clients
            state["target"] = torch.from_numpy(class_shares(pooled_histogram(inputs, range(inputs.clients))))
        target = state["target"].numpy() if self.target == "global" else class_shares(np.zeros_like(histograms[0]))
        distances = [share_distance(class_shares(each, target), target, self.metric) for each in histograms]
        weights = disco_weights(route_weights(inputs.arrivals, "samples"), distances, self.a, self.b)
        return MergeResult(mean_of_arrivals(inputs, weights), state)


def pooled_histogram(inputs: MergeInput, clients: Iterable[int]) -> NDArray[np.int64]:
    """The number of labels of each class that these clients have together."""
    together: NDArray[np.int64] = np.stack([inputs.label_histogram(client) for client in clients]).sum(axis=0)
    return together


def class_shares(histogram: NDArray[np.int64], if_empty: Floats | None = None) -> Floats:
    """The class shares of a histogram; for an empty one `if_empty`, or uniform shares."""
    if not histogram.any():
        return np.full(len(histogram), 1 / len(histogram)) if if_empty is None else if_empty
    shares: Floats = histogram / histogram.sum()
    return shares


def share_distance(shares: Floats, target: Floats, metric: DistanceMetric) -> float:
    """The distance of class shares from the target."""
    if metric == "kl":
        present = shares > 0
        return max(0.0, float(np.sum(shares[present] * np.log(shares[present] / target[present]))))
    if metric == "cosine":
        return max(0.0, 1 - float(shares @ target / np.sqrt((shares @ shares) * (target @ target))))
    return float(np.linalg.norm(shares - target, ord=1 if metric == "l1" else 2))


def disco_weights(samples: Sequence[float], distances: Sequence[float], a: float, b: float) -> list[float]:
    """The weights of all routes; their sum is 1, or 0 if no route has samples."""
    if sum(samples) == 0:
        return [0.0] * len(samples)
    sizes = np.array(samples) / sum(samples)
    gaps = np.array(distances) / (sum(distances) or 1)
    raw = np.maximum(0, sizes - a * gaps + b)
    weights: list[float] = (raw / raw.sum() if raw.any() else sizes).tolist()
    return weights
