"""What happens to a round plan while it is executed, beside the plan: tampering, taps, followed routes, repetitions.

Faults that change the plan itself, such as clients that drop out, are in the plan that `FaultModel.apply` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tampering = Literal["nan", "inf", "shape", "zero", "explode", "sign-flip", "replace"]
"""What may be done to a model after training and before it is handed on."""


@dataclass(frozen=True)
class TamperedHop:
    """One hop whose model is tampered with."""

    route: int
    index: int
    what: Tampering
    factor: float = 1.0


@dataclass(frozen=True)
class FaultCosts:
    """What a round costs beside its routes: time and transfers lost to clients that are slow or do not answer."""

    delays: tuple[float, ...] = ()
    """Seconds that each route loses; empty if none does."""

    wasted: tuple[tuple[str, int], ...] = ()
    """(kind of transfer, number of models sent without effect)."""


NO_FAULT_COSTS = FaultCosts()


@dataclass(frozen=True)
class ExecutionOverlay:
    """What one attempt at a round has beside its plan. Each attempt has its own, built before the first hop."""

    attempt: int = 0
    """How often the round was tried before."""

    tampers: tuple[TamperedHop, ...] = ()
    taps: tuple[tuple[int, int], ...] = ()
    """(route, index) of hops whose received model is copied for a tap."""

    followed: tuple[int, ...] = ()
    """Routes on which every hop measures what the model still knows of the clients before."""

    fault_costs: FaultCosts = NO_FAULT_COSTS

    def tamper_at(self, route: int, index: int) -> TamperedHop | None:
        if not self.tampers:  # asked for at every hop
            return None
        return next((each for each in self.tampers if (each.route, each.index) == (route, index)), None)


AS_PLANNED = ExecutionOverlay()
