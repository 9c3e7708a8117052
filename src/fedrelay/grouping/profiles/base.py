"""What every profile ψ has in common: it describes each client by a vector, for the assigner to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedrelay.cost.ledger import SetupStep, SetupTransfer
from fedrelay.data.federation import Federation
from fedrelay.experiment.spec import Section
from fedrelay.grouping.distances import DistanceName
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob

Vectors = NDArray[np.float64]
"""One row for each client that was asked for."""

ProfileRunner = Callable[[TrainingJob, ClientProfiler, Sequence[int], Tensor], Iterator[tuple[int, ProfileVector]]]
"""Has clients portray themselves, starting from these weights: (place in the list, vector), as they come."""


class ProfileOptions(Section):
    """How clients are described where that takes training; each profile looks at some of these."""

    epochs: int | None = Field(
        None, ge=1, description="clf, conf, weights: epochs every client trains for its profile; default 10, weights 1"
    )
    layers: Literal["all", "last2", "last"] = Field("all", description="clf: which linear layers: all, last2 or last")
    variance: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="clf, weights: share of the variance that principal components keep; null: the weights themselves",
    )
    standardise: bool = Field(
        False, description="clf, weights: scale every weight to unit variance before taking principal components"
    )
    relative: bool = Field(
        False, description="weights: the change since the first weights; for the weights themselves (variance null)"
    )
    normalise: Literal["sum", "softmax"] = Field(
        "sum", description="conf: how confidences become shares: divided by their sum, or by softmax"
    )
    probe: str = Field(
        "digits",
        min_length=1,
        description="t2v: a data set of images to train a small probe network on, or a file with the weights of a "
        "ResNet-18 (.safetensors, .pt, .pth)",
    )


@dataclass(frozen=True)
class ProfileInputs:
    """All that a profile may look at; `job` and `studio` are there for profiles that take training."""

    federation: Federation
    seed: int
    job: TrainingJob | None = None
    studio: ProfileRunner | None = None

    def untrained(self) -> TrainingJob:
        """What clients would train, and how."""
        assert self.job is not None, "this evidence has no model"
        return self.job

    def portraits(
        self, job: TrainingJob, portrait: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> ProfileVector:
        """The vectors of clients, row by row; each is put into place as it comes."""
        assert self.studio is not None, "this evidence has no studio"
        rows: ProfileVector | None = None
        for place, vector in self.studio(job, portrait, clients, weights):
            if rows is None:
                rows = np.empty((len(clients), len(vector)), dtype=vector.dtype)
            rows[place] = vector
        assert rows is not None, "there is nobody to portray"
        return rows


@dataclass(frozen=True)
class ProfilingResult:
    """What was learned about clients, and what it took."""

    vectors: Vectors
    setup: SetupStep | None = None
    """What clients did for it; None where they did not compute anything."""

    probe: Mapping[str, Tensor] = field(default_factory=dict)
    """The probe network that was used, to be kept with the run."""


def _nothing(evidence: ProfileInputs, options: ProfileOptions) -> None:
    """There is nothing to check."""


@dataclass(frozen=True)
class Profile:
    """A way to describe clients, and what is known of its vectors before any is made."""

    describe: Callable[[ProfileInputs, NDArray[np.int64], ProfileOptions], ProfilingResult]
    """The vectors of these clients, each of which holds data."""

    probabilities: bool
    """Whether every vector is a distribution over the classes."""

    non_negative: bool
    """Whether no entry is below zero."""

    usual_distance: DistanceName = "cosine"
    """What greedy grouping compares its vectors by, unless told otherwise."""

    options: frozenset[str] = frozenset()
    """Those of the profile options it looks at."""

    trained: bool = False
    """Whether clients have to compute something for it, at the cost of time and traffic."""

    needs_public: bool = False
    """Whether it looks at the public set."""

    needs_histograms: bool = False
    """Whether clients have to tell the server how many samples of every class they hold."""

    check: Callable[[ProfileInputs, ProfileOptions], None] = _nothing
    """Refuse data or a model that cannot be described so, before anybody trains."""


def pretraining(evidence: ProfileInputs, epochs: int) -> tuple[TrainingJob, Tensor]:
    """What every client trains for its profile: the run's first weights, its train settings, no local terms."""
    job = evidence.untrained()
    train = job.train.model_copy(update={"epochs": epochs})
    return replace(job, train=train, terms=()), job.layout.flatten(job.module)


def training_step(clients: NDArray[np.int64], job: TrainingJob, epochs: int, up: SetupTransfer) -> SetupStep:
    """The model goes to every client, is trained there, and something comes back; looking at a vector takes no time."""
    return SetupStep(
        clients.tolist(),
        SetupTransfer("model", job.layout.bytes),
        up,
        work=lambda samples, flops: epochs * samples * flops,
        updates=len(clients),
    )


def bytes_of(rows: NDArray[Any]) -> int:
    """What one row weighs on the wire."""
    return int(rows.shape[1] * rows.itemsize)
