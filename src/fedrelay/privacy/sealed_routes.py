"""Refuses sealed experiments whose routes are too short to hide anything, or end with more than sums."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.errors import SpecError
from fedrelay.local.sealed_routes import least_clients, uneven_payload
from fedrelay.local.terms.base import Term
from fedrelay.routes.plan import RoundPlan


def check_sealed_plan(plan: RoundPlan, terms: Sequence[Term]) -> None:
    """Refuse a sealed round whose models would show the server the work of single clients.

    Raises:
        SpecError: A sealed route has too few clients, or a tensor beside the model is no sum over them.
    """
    if name := uneven_payload(terms):
        raise SpecError(
            f"route.handover: 'sealed' cannot hide {name!r}, which travels with the model and shows the last client "
            "most; use a method without it (train.optimizer_state=reset or client), or 'server'"
        )
    least = least_clients(terms)
    for number, route in enumerate(plan.routes):
        if route.clients and (found := len(set(route.clients))) < least:
            clients = "1 client" if found == 1 else f"{found} clients"
            raise SpecError(
                f"route.handover: 'sealed' needs {least} clients or more on every route of this method: the server "
                f"sees its end; route {number} of round {plan.round} has {clients}; use larger groups, or 'server'"
            )
