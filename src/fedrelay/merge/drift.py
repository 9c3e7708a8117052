"""The server of FedDyn and FedDC: the mean of what arrived, moved by the mean drift of all clients.

Papers: see the term `drift`.

Rule: the mean drift H gains Σ (θ_i − w)/K over all routes, K being the number of all clients, present or not; then
w ← mean_i θ_i + H with equal weights. In FedDyn's own terms h = −αH.

Deviations: none. In chains a route's output stands for the sum of its clients' drifts, which is exact where terms stay
close to the model they received. Buffers take the plain mean.
"""

from __future__ import annotations

import torch

from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import mean


class DriftMean(Merge):
    """The plain mean plus the mean drift."""

    def apply(self, home: MergeInput) -> Merged:
        """Add this round's drift and step ahead by it."""
        trained = home.layout.trainable
        start = home.current[:trained].double()
        drift = home.memory["drift"].double() if "drift" in home.memory else torch.zeros_like(start)
        for arrival in home.arrivals:
            drift += (arrival.weights[:trained] - start) / home.clients
        weights = mean(home, [1] * len(home.arrivals))
        weights[:trained] += drift.to(weights.dtype)
        return Merged(weights, {"drift": drift.to(weights.dtype)})
