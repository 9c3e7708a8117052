"""What a term sends beside the model, and on which ways."""

from __future__ import annotations

from collections.abc import Sequence

from fedrelay.cost.ledger import Kind
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensors import Payload, ServerState
from fedrelay.routes.plan import RoundPlan

ROUND_MODEL = "round model"


def term_transfers(term: Term, plan: RoundPlan, *, first: bool) -> dict[Kind, tuple[str, ...]]:
    """Names of what travels by kind of transfer; `first` says that the server has nothing of its own to send yet.

    What the server tells goes down and on from client to client. Baggage goes on and home; what a client needs of it
    comes down too, from the second round on. The model of the round goes to clients that need it and get another one:
    on from client to client and, where models come out of slots or go through the server, down. Where only some who
    should have begun lack it, it is not part of every trip (see `late_round_models`).
    """
    told = tuple(tensor.name for tensor in term.tensors if isinstance(tensor, ServerState))
    payload = [tensor for tensor in term.tensors if isinstance(tensor, Payload) and tensor.sent]
    carried = tuple(tensor.name for tensor in payload)
    needed = tuple(tensor.name for tensor in payload if tensor.resumes)
    round_model = (ROUND_MODEL,) if term.needs_round_model and _goes_along(plan) else ()
    others_come_down = plan.relay == "server" or any(route.slot is not None for route in plan.routes)
    down = (*told, *(() if first else needed), *(round_model if others_come_down else ()))
    return {"s2c": down, "c2s": carried, "c2c": (*told, *carried, *round_model)}


def late_round_models(terms: Sequence[Term], plan: RoundPlan) -> int:
    """Of a round whose models do not take the round's model along: how often it is handed to a client that lacks it.

    In rotations every client begins a route, but for those whose first turn was lost; they get it once, on the way.
    """
    needed = any(term.needs_round_model for term in terms) and not _goes_along(plan)
    return len(_latecomers(plan)) if needed else 0


def _goes_along(plan: RoundPlan) -> bool:
    """Whether the model of the round is part of every trip: most of them lead to clients that lack it."""
    late, handed_on = len(_latecomers(plan)), sum(len(route.clients[1:]) for route in plan.routes)
    return late > 0 and (plan.relay == "server" or 2 * late >= handed_on)


def _latecomers(plan: RoundPlan) -> set[int]:
    """Clients that begin no route, and so do not have the model of the round anyway."""
    begin = {client for route in plan.routes for client in route.clients[:1]}
    return {client for route in plan.routes for client in route.clients} - begin
