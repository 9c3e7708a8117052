"""The model that arrived last becomes the global model: nothing is averaged.

Used by single trips (FedCyclic, centralised training). Deviations: none.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fedrelay.local.arrival import Arrival
from fedrelay.merge.base import Merge
from fedrelay.models.layout import Layout


class Last(Merge):
    """Take the output of the last route."""

    def apply(self, current: Tensor, arrivals: Sequence[Arrival], layout: Layout) -> Tensor:
        """The last arrival, copied."""
        return arrivals[-1].weights.clone()
