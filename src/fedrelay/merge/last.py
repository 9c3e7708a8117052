"""The model that arrived last becomes the global model: nothing is averaged.

Used by single trips (FedCyclic, centralised training). Deviations: none.
"""

from __future__ import annotations

from fedrelay.merge.base import Merge, Merged, MergeInput


class Last(Merge):
    """Take the output of the last route."""

    def apply(self, home: MergeInput) -> Merged:
        """The last arrival, copied."""
        return Merged(home.arrivals[-1].weights.clone())
