"""The base class of all profiles ψ: each client is described by a vector, so that clients can be compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedrelay.cost.ledger import SetupCost, SetupTransfer
from fedrelay.data.federation import Federation
from fedrelay.data.noisy_counts import MIN_EPSILON
from fedrelay.experiment.spec import Section
from fedrelay.grouping.distances import DistanceName
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob

Vectors = NDArray[np.float64]
"""One row per client."""

ProfileRunner = Callable[[TrainingJob, ClientProfiler, Sequence[int], Tensor], Iterator[tuple[int, ProfileVector]]]
"""(job, profiler, clients, initial weights) → (index in `clients`, vector) of each client, in any order."""


class ProfileOptions(Section):
    """Options of profiles; each profile uses some of them."""

    epsilon: float | None = Field(
        None,
        ge=MIN_EPSILON,
        description="hist, counts: clients add noise to their class counts, so that the class of one sample is private "
        "with this ε; null: exact counts",
    )
    epochs: int | None = Field(
        None,
        ge=1,
        description="clf, conf, weights: epochs that each client trains for its profile; default 10, for weights 1",
    )
    layers: Literal["all", "last2", "last"] = Field(
        "all", description="clf: which linear layers are used: all, last2 or last"
    )
    variance: float | None = Field(
        0.9,
        gt=0,
        le=1,
        description="clf, weights: share of the variance that principal components explain; null: no components",
    )
    standardise: bool = Field(
        False, description="clf, weights: scale each weight to unit variance before computing principal components"
    )
    relative: bool = Field(False, description="weights: use the change since the initial weights; needs variance null")
    normalise: Literal["sum", "softmax"] = Field(
        "sum", description="conf: how confidences are normalised to shares: sum or softmax"
    )
    probe: str = Field(
        "digits",
        min_length=1,
        description="t2v: an image data set on which a small probe network is trained, or a file with the weights of a "
        "ResNet-18 (.safetensors, .pt, .pth)",
    )


@dataclass(frozen=True)
class ProfileInputs:
    """Everything a profile may use. `job` and `run_profiler` are set if clients can compute something for it."""

    federation: Federation
    seed: int
    job: TrainingJob | None = None
    run_profiler: ProfileRunner | None = None
    mean_for_unshared: bool = False
    """Whether owners of nodes need not share what a profile asks for."""

    def training_job(self) -> TrainingJob:
        """What clients train in a round, and how."""
        assert self.job is not None, "these inputs have no model"
        return self.job

    def profile_vectors(
        self, job: TrainingJob, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> ProfileVector:
        """Run a profiler at these clients and return their vectors, row by row.

        Args:
            job: The training job, with the model that `weights` belong to.
            profiler: What each client computes.
            clients: The clients, at least one.
            weights: The flat model that is sent to every client.
        """
        assert self.run_profiler is not None, "these inputs cannot run profilers"
        rows: ProfileVector | None = None
        for index, vector in self.run_profiler(job, profiler, clients, weights):
            if rows is None:
                rows = np.empty((len(clients), len(vector)), dtype=vector.dtype)
            rows[index] = vector
        assert rows is not None, "there are no clients to profile"
        return rows


@dataclass(frozen=True)
class ProfilingResult:
    """The vectors of clients, and what computing them cost."""

    vectors: Vectors
    setup: SetupCost | None = None
    """The work and transfers of clients; None if clients computed nothing."""

    probe: Mapping[str, Tensor] = field(default_factory=dict)
    """The probe network, to be saved with the run."""

    unshared: tuple[int, ...] = ()
    """Clients whose owners do not share what describes them; they have the mean of all other vectors."""


class Profile(ABC):
    """Describes each client by a vector, so that similar clients have similar vectors.

    A subclass implements `compute`; its class attributes say what is known about the vectors in advance. To use a
    profile of your own, return it from `active_profile` in a subclass of `Grouping`.

    Example:
        >>> import numpy as np
        >>> import fedrelay as fr
        >>> from fedrelay.grouping.profiles.base import ProfilingResult
        >>> class SizeProfile(fr.Profile):
        ...     '''The number of samples of a client.'''
        ...
        ...     non_negative = True
        ...
        ...     def compute(self, inputs, clients, options):
        ...         return ProfilingResult(inputs.federation.sample_counts()[clients, None].astype(np.float64))
    """

    probabilities: ClassVar[bool] = False
    """Whether every vector is a probability distribution over the classes."""

    non_negative: ClassVar[bool] = False
    """Whether vectors have no negative entries."""

    default_distance: ClassVar[DistanceName] = "cosine"
    """The distance that greedy grouping uses unless `grouping.distance` is set."""

    options: ClassVar[frozenset[str]] = frozenset()
    """The names of the profile options that this profile uses."""

    computed_by_clients: ClassVar[bool] = False
    """Whether clients compute something for it, which costs time and transfers before the first round."""

    needs_public: ClassVar[bool] = False
    """Whether it uses the public samples."""

    needs_class_counts: ClassVar[bool] = False
    """Whether clients send the server their number of samples of each class."""

    def check_inputs(self, inputs: ProfileInputs, options: ProfileOptions) -> None:  # noqa: B027 (optional)
        """Refuse data or a model that this profile cannot describe, before any client trains.

        Raises:
            SpecError: The data or the model do not fit.
        """

    @abstractmethod
    def compute(self, inputs: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
        """Return one vector for each of these clients. All of them have samples."""


def profile_training(inputs: ProfileInputs, epochs: int) -> tuple[TrainingJob, Tensor]:
    """What clients train for a profile: the job without local terms, and the run's initial weights."""
    job = inputs.training_job()
    train = job.train.model_copy(update={"epochs": epochs, "steps": "by-size"})
    return replace(job, train=train, terms=()), job.layout.flatten(job.module)


def training_step(clients: NDArray[np.int64], job: TrainingJob, epochs: int, up: SetupTransfer) -> SetupCost:
    """The cost of sending the model to all clients, training it there, and sending `up` back."""
    return SetupCost(
        clients.tolist(),
        SetupTransfer("model", job.layout.bytes),
        up,
        work=lambda samples, flops: epochs * samples * flops,
        updates=len(clients),
    )


def row_bytes(rows: NDArray[Any]) -> int:
    """The size of one row in bytes."""
    return int(rows.shape[1] * rows.itemsize)
