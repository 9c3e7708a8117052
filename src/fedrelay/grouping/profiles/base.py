"""What every profile ψ has in common: it describes each client by a vector, for the assigner to compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Federation

Vectors = NDArray[np.float64]
"""One row for each client that was asked for."""


@dataclass(frozen=True)
class Evidence:
    """All that a profile may look at."""

    federation: Federation
    seed: int


@dataclass(frozen=True)
class Profile:
    """A way to describe clients, and what is known of its vectors before any is made."""

    describe: Callable[[Evidence, NDArray[np.int64]], Vectors]
    """The vectors of these clients, each of which holds data."""

    probabilities: bool
    """Whether every vector is a distribution over the classes."""

    non_negative: bool
    """Whether no entry is below zero."""
