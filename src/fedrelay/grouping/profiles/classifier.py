"""ψ_clf: the classifier that a client learns: the weights of the model's linear layers after a little training.

Paper: R. Zaccone et al., FedSeq, ICPR 2022.

Rule: every client trains the run's initial weights for `epochs` epochs (10) with the run's train settings and no local
terms. Its vector is the weights, without biases, of the linear layers: all of them, the last two or the last. They are
reduced to the principal components that explain 90 % of the variance.

Deviations: the authors' code starts from other weights than those of the run; here they are the same, as in the paper.
Its later version scales each weight to unit variance first (`standardise`). The training happens once, during setup:
the model is sent to every client, and the weights of the chosen layers come back.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.cost.ledger import SetupTransfer
from fedrelay.errors import SpecError
from fedrelay.grouping.principal_components import principal_components
from fedrelay.grouping.profiles.base import (
    Profile,
    ProfileInputs,
    ProfileOptions,
    ProfilingResult,
    profile_training,
    row_bytes,
    training_step,
)
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatModule

EPOCHS = 10

_LAYERS = {"all": 0, "last2": -2, "last": -1}


class TrainedWeightsProfiler(ClientProfiler):
    """The given (begin, end) parts of the flat model after training."""

    parts: tuple[tuple[int, int], ...]

    def compute(self, client: int, weights: Tensor, flat_module: FlatModule, job: TrainingJob) -> ProfileVector:
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))  # a type that NumPy has
        return np.concatenate([wide[begin:end].numpy() for begin, end in self.parts])


class ClassifierProfile(Profile):
    """The trained linear layers of each client."""

    options: ClassVar[frozenset[str]] = frozenset({"epochs", "layers", "variance", "standardise"})
    computed_by_clients: ClassVar[bool] = True

    def check_inputs(self, inputs: ProfileInputs, options: ProfileOptions) -> None:
        if not linear_layers(inputs.training_job()):
            raise SpecError("grouping.profile: 'clf' needs a model with linear layers, and this model has none")

    def compute(self, inputs: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
        self.check_inputs(inputs, options)
        epochs = options.epochs or EPOCHS
        job, start = profile_training(inputs, epochs)
        profiler = TrainedWeightsProfiler(parts=linear_layers(job, options.layers))
        rows = inputs.profile_vectors(job, profiler, clients.tolist(), start)
        step = training_step(clients, job, epochs, SetupTransfer("model", row_bytes(rows)))
        return ProfilingResult(reduced(rows, options), step)


def linear_layers(job: TrainingJob, which: str = "all") -> tuple[tuple[int, int], ...]:
    """The (begin, end) of the weights of all linear layers in the flat model, in the order of the model."""
    names = [f"{name}.weight".lstrip(".") for name, each in job.module.named_modules() if isinstance(each, nn.Linear)]
    places = {entry.name: (entry.offset, entry.offset + entry.size) for entry in job.layout.entries}
    return tuple(places[name] for name in names if name in places)[_LAYERS[which] :]


def reduced(rows: ProfileVector, options: ProfileOptions) -> NDArray[np.float64]:
    """The principal components of weights, or the weights themselves if `variance` is null."""
    if options.variance is None:
        return rows.astype(np.float64)
    return principal_components(rows, options.variance, standardise=options.standardise)
