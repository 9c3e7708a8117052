"""What every merge has in common: arrivals in, the next global model out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from fedrelay.local.arrival import Arrival
from fedrelay.models.layout import Layout
from fedrelay.spec import Section


class Merge(Section, ABC):
    """A rule that joins arrivals. It sees each route as if it were one client."""

    @abstractmethod
    def apply(self, current: Tensor, arrivals: Sequence[Arrival], layout: Layout) -> Tensor:
        """The next global model, a new tensor. Arrivals come in the order of the plan and are never empty."""
