"""ψ_weights: all weights of the model after a client has trained it once.

Paper: M. Arafeh et al., WFSL, IEEE 2025 (the client selector compares clients by weights after a profiling pass).

Rule: every client trains the run's initial weights for `epochs` epochs (1) with the run's train settings and no local
terms. Its vector is all trained weights, reduced to the principal components that explain 90 % of the variance.

Deviations: the paper does not say how many components there are. With `variance: null` the weights themselves are used,
and with `relative` their change since the initial weights: the weights of clients are nearly parallel, their changes
are not. (Components are centred, so both are the same for them.) The training happens once, during setup: the model is
sent to every client and its weights come back.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.cost.ledger import SetupTransfer
from fedrelay.grouping.profiles.base import (
    Profile,
    ProfileInputs,
    ProfileOptions,
    ProfilingResult,
    profile_training,
    row_bytes,
    training_step,
)
from fedrelay.grouping.profiles.classifier import TrainedWeightsProfiler, reduced

EPOCHS = 1


class WeightsProfile(Profile):
    """All trained weights of each client."""

    options: ClassVar[frozenset[str]] = frozenset({"epochs", "variance", "standardise", "relative"})
    computed_by_clients: ClassVar[bool] = True

    def compute(self, inputs: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
        epochs = options.epochs or EPOCHS
        job, start = profile_training(inputs, epochs)
        profiler = TrainedWeightsProfiler(parts=((0, job.layout.trained_size),))
        rows = inputs.profile_vectors(job, profiler, clients.tolist(), start)
        step = training_step(clients, job, epochs, SetupTransfer("model", row_bytes(rows)))
        if options.relative:
            rows -= start[: job.layout.trained_size].double().numpy().astype(rows.dtype)
        return ProfilingResult(reduced(rows, options), step)
