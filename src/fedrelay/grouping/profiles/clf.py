"""ψ_clf: the classifier a client would learn: the weight matrices of the model's linear layers after a little training.

Paper: R. Zaccone et al., FedSeq, ICPR 2022.

Rule: every client trains the run's first weights for `epochs` epochs (10) with the run's train settings and no local
terms. Its vector are the weights, without biases, of the linear layers: all of them, the last two or the last.
Principal components that explain 90 % of the variance stand for all weights.

Deviations: the authors' code starts from other weights than those of the run; here they are the same, as the paper
says. Its later version scales every weight to unit variance first: `standardise`. The training is a one-off pass: the
model goes to every client, the weights of the chosen layers come back.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.cost.ledger import SetupTransfer
from fedrelay.errors import SpecError
from fedrelay.grouping.profiles.base import (
    Profile,
    ProfileInputs,
    ProfileOptions,
    ProfilingResult,
    bytes_of,
    pretraining,
    training_step,
)
from fedrelay.grouping.profiles.components import principal_components
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatModule

EPOCHS = 10

_LAYERS = {"all": 0, "last2": -2, "last": -1}


class TrainedWeightsProfiler(ClientProfiler):
    """Parts of a model after training: (begin, end) in the flat tensor."""

    parts: tuple[tuple[int, int], ...]

    def compute(self, client: int, weights: Tensor, flat_module: FlatModule, job: TrainingJob) -> ProfileVector:
        """The parts, one after another, in a type that NumPy knows."""
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        return np.concatenate([wide[begin:end].numpy() for begin, end in self.parts])


def linear_layers(job: TrainingJob, which: str = "all") -> tuple[tuple[int, int], ...]:
    """Where the weight matrices of a model's linear layers lie, in the order of the model."""
    names = [f"{name}.weight".lstrip(".") for name, each in job.module.named_modules() if isinstance(each, nn.Linear)]
    places = {entry.name: (entry.offset, entry.offset + entry.size) for entry in job.layout.entries}
    return tuple(places[name] for name in names if name in places)[_LAYERS[which] :]


def check_layers(evidence: ProfileInputs, options: ProfileOptions) -> None:
    """A model without linear layers has no classifier to speak of."""
    if not linear_layers(evidence.untrained()):
        raise SpecError("grouping.profile: 'clf' looks at linear layers, and the model has none")


def classifiers(evidence: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
    """The classifier of every client, in components."""
    check_layers(evidence, options)
    epochs = options.epochs or EPOCHS
    job, start = pretraining(evidence, epochs)
    portrait = TrainedWeightsProfiler(parts=linear_layers(job, options.layers))
    rows = evidence.portraits(job, portrait, clients.tolist(), start)
    return ProfilingResult(
        compressed(rows, options), training_step(clients, job, epochs, SetupTransfer("model", bytes_of(rows)))
    )


def compressed(rows: ProfileVector, options: ProfileOptions) -> NDArray[np.float64]:
    """Weights as components, or as they are."""
    if options.variance is None:
        return rows.astype(np.float64)
    return principal_components(rows, options.variance, standardise=options.standardise)


CLF = Profile(
    classifiers,
    probabilities=False,
    non_negative=False,
    options=frozenset({"epochs", "layers", "variance", "standardise"}),
    trained=True,
    check=check_layers,
)
