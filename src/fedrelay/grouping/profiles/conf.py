"""ψ_conf: how sure a client's model is of every class, on a few public samples.

Paper: R. Zaccone et al., FedSeq, ICPR 2022.

Rule: every client trains the run's first weights for `epochs` epochs (10) with the run's train settings and no local
terms. p_c is the mean probability that its model gives to class c, over the public samples of class c. Its vector is p
/ Σ p.

Deviations: the paper's formula takes the softmax of p, the authors' code divides by the sum, and only that can come
close to a single class, as the paper says of clients with one: `normalise: softmax` is there for comparison. A class
without a public sample has p_c = 0; where all p_c are 0 the shares are equal. The public set is public, so the client
has it and looks at it itself: the model goes to every client in a one-off pass, and p comes back, not the weights.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.cost.ledger import SetupTransfer
from fedrelay.data.public import PublicFederation
from fedrelay.errors import SpecError
from fedrelay.grouping.profiles.base import (
    Profile,
    ProfileInputs,
    ProfileOptions,
    ProfilingResult,
    Vectors,
    bytes_of,
    pretraining,
    training_step,
)
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatModule

EPOCHS = 10
CHUNK = 512
"""Public samples looked at at a time."""


class ConfidenceProfiler(ClientProfiler):
    """The mean probability of the right class, class by class."""

    def compute(self, client: int, weights: Tensor, flat_module: FlatModule, job: TrainingJob) -> ProfileVector:
        """p, as the client finds it on the public set."""
        assert isinstance(job.federation, PublicFederation)
        x, y = job.federation.public
        flat_module.load(weights)
        flat_module.module.eval()
        with torch.no_grad():
            logits = torch.cat(
                [flat_module.module(flat_module.to_inputs(part)).cpu() for part in torch.split(x, CHUNK)]
            )
        right = logits.double().softmax(-1)[torch.arange(len(y)), y]
        sums = torch.zeros(job.federation.classes, dtype=torch.float64).index_add_(0, y, right)
        found: ProfileVector = (sums / y.bincount(minlength=len(sums)).clamp(min=1)).float().numpy()
        return found


def confidences(evidence: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
    """The confidence vector of every client."""
    check_public(evidence, options)
    epochs = options.epochs or EPOCHS
    job, start = pretraining(evidence, epochs)
    rows = evidence.portraits(job, ConfidenceProfiler(), clients.tolist(), start)
    setup = training_step(clients, job, epochs, SetupTransfer("profile", bytes_of(rows)))
    return ProfilingResult(shares(rows.astype(np.float64), options.normalise), setup)


def shares(confidences: Vectors, normalise: str = "sum") -> Vectors:
    """Confidences as shares that sum to 1."""
    values = np.exp(confidences) if normalise == "softmax" else confidences
    totals = values.sum(axis=1, keepdims=True)
    found: Vectors = np.where(totals > 0, values / np.where(totals > 0, totals, 1), 1 / values.shape[1])
    return found


def check_public(evidence: ProfileInputs, options: ProfileOptions) -> None:
    """Without public samples there is nothing to be sure of."""
    if not isinstance(evidence.federation, PublicFederation):
        raise SpecError("data.public: must be at least 1 for the profile 'conf', which looks at the public samples")


CONF = Profile(
    confidences,
    probabilities=True,
    non_negative=True,
    usual_distance="kl",
    options=frozenset({"epochs", "normalise"}),
    trained=True,
    needs_public=True,
    check=check_public,
)
