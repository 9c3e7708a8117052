"""Portraits: a client describes itself by a vector, where its data are; only the vector leaves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.experiment.spec import Section
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatModule

ProfileVector = NDArray[np.floating[Any]]
"""What a portrait shows: one vector, of the same length for every client."""


class ClientProfiler(Section, ABC):
    """What a client computes about itself. It is sent to the clients by name, with fields that are plain data."""

    trains: ClassVar[bool] = True
    """Whether the client trains the model first, as the job says."""

    @abstractmethod
    def of(self, client: int, weights: Tensor, bench: FlatModule, job: TrainingJob) -> ProfileVector:
        """The vector of a client with this model, trained or as it was sent; `bench` is there to load it into."""
