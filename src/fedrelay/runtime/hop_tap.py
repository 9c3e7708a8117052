"""Hop taps: they see models as clients receive them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedrelay.routes.arrival import Arrival
from fedrelay.routes.plan import RoundPlan


class HopTap(Protocol):
    """Sees models as clients receive them."""

    def hops_to_tap(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        """(route, index) of the hops whose received model is wanted."""

    def on_received_models(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """The hops of an attempt are over. `Arrival.received_models` are valid during this call only."""
