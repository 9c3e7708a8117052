"""Client profiles: each client describes itself by a vector, computed where its data are. Only the vector is sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.experiment.spec import Section
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatModule

ProfileVector = NDArray[np.floating[Any]]
"""A client's profile; it has the same length for every client."""


class ClientProfiler(Section, ABC):
    """Computes a client's profile. It is sent to the clients by name, with fields that are plain data."""

    trains: ClassVar[bool] = True
    """Whether the client first trains the model, as in a hop of the job."""

    @abstractmethod
    def compute(self, client: int, weights: Tensor, flat_module: FlatModule, job: TrainingJob) -> ProfileVector:
        """Return the client's vector.

        Args:
            client: The client.
            weights: The model, trained on the client's samples if `trains`.
            flat_module: A module to load the weights into.
            job: The samples and settings.
        """
