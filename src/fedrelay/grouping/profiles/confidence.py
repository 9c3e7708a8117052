"""ψ_conf: the confidence of a client's model in each class, on a few public samples.

Paper: R. Zaccone et al., FedSeq, ICPR 2022.

Rule: every client trains the run's initial weights for `epochs` epochs (10) with the run's train settings and no local
terms. p_c is the mean probability that its model gives to class c, over the public samples of class c. Its vector is
p / Σ p.

Deviations: the paper's formula takes the softmax of p; the authors' code divides by the sum. Only the latter can come
close to a single class, as the paper describes for clients with one class; `normalise: softmax` is there for
comparison. A class without public samples has p_c = 0; if all p_c are 0, the shares are equal. The client evaluates the
public samples itself, during setup: the model is sent to every client, and p comes back, not the weights.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.cost.ledger import SetupTransfer
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.errors import SpecError
from fedrelay.grouping.distances import DistanceName
from fedrelay.grouping.profiles.base import (
    Profile,
    ProfileInputs,
    ProfileOptions,
    ProfilingResult,
    Vectors,
    profile_training,
    row_bytes,
    training_step,
)
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatModule
from fedrelay.models.nested_inputs import logits_of, rows_of

EPOCHS = 10
CHUNK = 512
"""Public samples that are evaluated together."""


class ConfidenceProfiler(ClientProfiler):
    """The mean probability of the correct class on the public samples of each class."""

    def compute(self, client: int, weights: Tensor, flat_module: FlatModule, job: TrainingJob) -> ProfileVector:
        assert isinstance(job.federation, FederationWithPublicSamples)
        x, y = job.federation.public
        flat_module.load(weights)
        flat_module.module.eval()
        chunks = [slice(begin, begin + CHUNK) for begin in range(0, len(y), CHUNK)]
        with torch.no_grad():
            parts = [flat_module.outputs(flat_module.to_inputs(rows_of(x, rows))) for rows in chunks]
            logits = torch.cat([logits_of(part).cpu() for part in parts])
        correct = logits.double().softmax(-1)[torch.arange(len(y)), y]
        sums = torch.zeros(job.federation.class_count, dtype=torch.float64).index_add_(0, y, correct)
        means: ProfileVector = (sums / y.bincount(minlength=len(sums)).clamp(min=1)).float().numpy()
        return means


class ConfidenceProfile(Profile):
    """The confidence of each client's model in each class."""

    probabilities: ClassVar[bool] = True
    non_negative: ClassVar[bool] = True
    default_distance: ClassVar[DistanceName] = "kl"
    options: ClassVar[frozenset[str]] = frozenset({"epochs", "normalise"})
    computed_by_clients: ClassVar[bool] = True
    needs_public: ClassVar[bool] = True

    def check_inputs(self, inputs: ProfileInputs, options: ProfileOptions) -> None:
        if not isinstance(inputs.federation, FederationWithPublicSamples):
            raise SpecError("data.public: must be at least 1 for the profile 'conf', which uses the public samples")
        if inputs.job is not None and inputs.job.task.name != "classification":
            raise SpecError(f"grouping.profile: 'conf' fits the task classification, not {inputs.job.task.name!r}")

    def compute(self, inputs: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
        self.check_inputs(inputs, options)
        epochs = options.epochs or EPOCHS
        job, start = profile_training(inputs, epochs)
        rows = inputs.profile_vectors(job, ConfidenceProfiler(), clients.tolist(), start)
        step = training_step(clients, job, epochs, SetupTransfer("profile", row_bytes(rows)))
        return ProfilingResult(normalised(rows.astype(np.float64), options.normalise), step)


def normalised(confidences: Vectors, how: str = "sum") -> Vectors:
    """Confidences as shares that sum to 1."""
    values = np.exp(confidences) if how == "softmax" else confidences
    totals = values.sum(axis=1, keepdims=True)
    shares: Vectors = np.where(totals > 0, values / np.where(totals > 0, totals, 1), 1 / values.shape[1])
    return shares
