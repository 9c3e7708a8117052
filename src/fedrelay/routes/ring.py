"""FedCyclic: one model travels around a ring of clients.

Papers: S. Jain, K. R. Jerripothula. Federated Learning for Commercial Image Sources. WACV 2023 (Fed-Cyclic); with
sampled clients the baseline of A. Silvi et al., IEEE Access 2024; SFL(i) of H. Liang et al., SPFL, NeurIPS 2025.

Rule: each round samples m = max(1, ⌊C·K⌋) clients. The global model visits them in the sampled order and goes back to
the server. It is the only model, so there is nothing to average.

Deviations: none. With `order: fixed`, `start: i` and fraction 1 it is the original Fed-Cyclic and SFL(i): the clients
in the order of their numbers, starting at client i. The other orders are ours (`client_order.py`).
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from fedrelay.errors import SpecError
from fedrelay.routes.base import PlanningContext, sample
from fedrelay.routes.ordered_routing import OrderedRouting
from fedrelay.routes.plan import RoundPlan, Route


class Ring(OrderedRouting):
    """One route through all sampled clients."""

    start: int = Field(0, ge=0, description="order fixed: the first client")

    @model_validator(mode="after")
    def _start_needs_an_order(self) -> Self:
        if self.start and self.order != "fixed":
            raise ValueError(f"start: has no effect with order {self.order!r}")
        return self

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        if self.start >= context.client_count:
            raise SpecError(
                f"route.start: must be less than the number of clients ({context.client_count}), got {self.start}"
            )
        clients = sample(context, round, context.client_count)
        if self.order == "fixed":
            clients = tuple(sorted(clients, key=lambda client: (client - self.start) % context.client_count))
        elif self.order != "random":  # a sample is in random order already
            clients = self.in_order(context, clients, context.rng("order", round))
        return RoundPlan(round, (Route(clients),), self.handover)
