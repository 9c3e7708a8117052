"""Portraits: a client describes itself by a vector, where its data are; only the vector leaves it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.local.trainer import Job
from fedrelay.models.layout import Workbench

Likeness = NDArray[np.floating[Any]]
"""What a portrait shows: one vector, of the same length for every client."""


class Portrait(Protocol):
    """What a client computes about itself. It is sent to the clients, so it is small and can be pickled."""

    @property
    def trains(self) -> bool:
        """Whether the client trains the model first, as the job says."""

    def of(self, client: int, weights: Tensor, bench: Workbench, job: Job) -> Likeness:
        """The vector of a client with this model, trained or as it was sent; `bench` is there to load it into."""
