"""What all routes have in common that lead through several clients: their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from fedrelay.routes.base import HANDOVER_HELP, ChainHandover, PlanningContext, Routing
from fedrelay.routes.client_order import (
    GIVEN_HELP,
    ORDERS_BY_CLASSES,
    ClientOrder,
    as_given,
    by_likeness,
    by_size,
    complementing,
)


class OrderedRouting(Routing):
    """Base class of routes whose clients are visited in an order that can be set."""

    order: ClientOrder = Field(
        "random",
        description="order of the clients: random (new each time), fixed, size (largest last), given, complement (of "
        "the classes before), best-last or worst-last (most or least like all clients)",
    )
    given: tuple[int | str, ...] = Field((), description=GIVEN_HELP)
    handover: ChainHandover = Field("direct", description=HANDOVER_HELP)

    @model_validator(mode="after")
    def _given_needs_its_order(self) -> Self:
        if self.given and self.order != "given":
            raise ValueError(f"given: has no effect with order {self.order!r}")
        if self.order == "given" and not self.given:
            raise ValueError(f"given: is required with order 'given': {GIVEN_HELP.partition(': ')[2]}")
        return self

    @property
    def needs_class_counts(self) -> bool:
        return self.order in ORDERS_BY_CLASSES

    @property
    def same_clients_last(self) -> bool:
        return self.order not in ("random", "complement")

    def in_order(self, context: PlanningContext, clients: Sequence[int], rng: np.random.Generator) -> tuple[int, ...]:
        """Clients in the order of `order`; `fixed` leaves them as they are.

        Args:
            context: What is known of the clients.
            clients: Those to visit.
            rng: Draws the random order, or the first client and between equals of `complement`.
        """
        match self.order:
            case "random":
                return tuple(rng.permutation(np.asarray(clients)).tolist())
            case "size":
                return by_size(clients, context.sample_count)
            case "given":
                return as_given(clients, self.given, context)
            case "complement":
                return complementing(clients, context.class_counts, rng)
            case "best-last" | "worst-last":
                everyone = context.class_counts_of_all()
                best_last = self.order == "best-last"
                return by_likeness(clients, context.class_counts, everyone, best_last=best_last)
        return tuple(clients)
