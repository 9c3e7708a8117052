"""ψ_weights: all weights of the model after a client has trained it once.

Paper: M. Arafeh et al., WFSL, IEEE 2025 (the client selector compares clients by weights after a profiling pass).

Rule: every client trains the run's first weights for `epochs` epochs (1) with the run's train settings and no local
terms. Its vector are all trained weights, in principal components that explain 90 % of the variance.

Deviations: the paper does not say how many components there are. With `variance: null` the weights stand for
themselves, and with `relative` their change since the first weights does: the weights of clients are all but parallel,
their changes are not. (Components are centred, so to them both are the same.) The training is a one-off pass: the
model goes to every client and its weights come back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.cost.ledger import SetupTransfer
from fedrelay.grouping.profiles.base import (
    Profile,
    ProfileInputs,
    ProfileOptions,
    ProfilingResult,
    bytes_of,
    pretraining,
    training_step,
)
from fedrelay.grouping.profiles.clf import TrainedWeightsProfiler, compressed

EPOCHS = 1


def trained_weights(evidence: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
    """The weights of every client."""
    epochs = options.epochs or EPOCHS
    job, start = pretraining(evidence, epochs)
    portrait = TrainedWeightsProfiler(parts=((0, job.layout.trained_size),))
    rows = evidence.portraits(job, portrait, clients.tolist(), start)
    setup = training_step(clients, job, epochs, SetupTransfer("model", bytes_of(rows)))
    if options.relative:
        rows -= start[: job.layout.trained_size].double().numpy().astype(rows.dtype)
    return ProfilingResult(compressed(rows, options), setup)


WEIGHTS = Profile(
    trained_weights,
    probabilities=False,
    non_negative=False,
    options=frozenset({"epochs", "variance", "standardise", "relative"}),
    trained=True,
)
