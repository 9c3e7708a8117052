"""The server of FedDyn and FedDC: the mean of the arrivals, moved by the mean drift of all clients.

Papers: see the term `drift`.

Rule: the mean drift H grows by Σ (θ_i − w)/K over all routes, where K is the number of all clients, whether they took
part or not. Then w ← mean_i θ_i + H with equal weights. In FedDyn's notation h = −αH.

Deviations: none. On a chain, the route's output stands for the sum of its clients' drifts. This is exact if terms
anchor each client at the model it received. Buffers take the plain mean.
"""

from __future__ import annotations

import torch

from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import mean_of_arrivals


class MeanPlusDrift(Merge):
    """The plain mean plus the mean drift."""

    def apply(self, inputs: MergeInput) -> MergeResult:
        trained = inputs.layout.trained_size
        start = inputs.global_model[:trained].double()
        drift = inputs.state["drift"].double() if "drift" in inputs.state else torch.zeros_like(start)
        for arrival in inputs.arrivals:
            drift = drift + (arrival.weights[:trained] - start) / inputs.clients  # the state of the last merge stays
        weights = mean_of_arrivals(inputs, [1] * len(inputs.arrivals))
        weights[:trained] += drift.to(weights.dtype)
        return MergeResult(weights, {"drift": drift.to(weights.dtype)})
