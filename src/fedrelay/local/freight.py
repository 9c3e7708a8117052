"""What a term sends beside the model, and on which ways."""

from __future__ import annotations

from fedrelay.ledger import Kind
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.belongings import Carried, Told
from fedrelay.routes.plan import RoundPlan


def freight(term: Term, plan: RoundPlan, *, first: bool) -> dict[Kind, tuple[str, ...]]:
    """Names of what travels by kind of transfer; `first` says that the server has nothing of its own to send yet.

    What the server tells goes down and on from client to client. Baggage goes on and home; what a client needs of it
    comes down too, from the second round on. The model of the round goes to clients that need it and get another one:
    on from client to client and, where models come out of slots or go through the server, down.
    """
    told = tuple(tensor.name for tensor in term.tensors if isinstance(tensor, Told))
    baggage = [tensor for tensor in term.tensors if isinstance(tensor, Carried) and tensor.sent]
    carried = tuple(tensor.name for tensor in baggage)
    needed = tuple(tensor.name for tensor in baggage if tensor.resumes)
    round_model = ("round model",) if term.needs_round_model and not _all_begin(plan) else ()
    others_come_down = plan.relay == "server" or any(route.slot is not None for route in plan.routes)
    down = (*told, *(() if first else needed), *(round_model if others_come_down else ()))
    return {"s2c": down, "c2s": carried, "c2c": (*told, *carried, *round_model)}


def _all_begin(plan: RoundPlan) -> bool:
    """Whether every client begins a route and so has the model of the round anyway."""
    begin = {route.clients[0] for route in plan.routes if route.clients}
    return all(client in begin for route in plan.routes for client in route.clients)
