"""What a term sends beside the model, by kind of transfer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedrelay.cost.ledger import Kind
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import Payload, ServerState
from fedrelay.routes.plan import RoundPlan

ROUND_MODEL = "round model"


def term_transfers(term: Term, *, first: bool) -> dict[Kind, tuple[ServerState | Payload, ...]]:
    """What travels with every model, by kind of transfer; `first`: the server has nothing of its own yet.

    Server state goes down and on from client to client. The payload goes on from client to client and up; what a client
    needs of it comes down too, from the second round on.
    """
    server = tuple(tensor for tensor in term.tensors if isinstance(tensor, ServerState))
    sent = tuple(tensor for tensor in term.tensors if isinstance(tensor, Payload) and tensor.sent)
    needed = tuple(tensor for tensor in sent if tensor.resumes)
    return {"s2c": (*server, *(() if first else needed)), "c2s": sent, "c2c": (*server, *sent)}


def round_models(terms: Sequence[Term], plan: RoundPlan) -> Counter[Kind]:
    """How often the model of the round is sent beside another model, by kind of transfer.

    The first client of a route receives it as the model itself, unless the route continues with the model of its slot.
    Between clients, each client gets it once and keeps it for the round. A server that passes models on sends it along
    every time. Without a server, all clients have it from the start.
    """
    found: Counter[Kind] = Counter()
    if plan.handover in ("none", "peers") or not any(term.needs_round_model for term in terms):
        return found
    have_it = {route.clients[0] for route in plan.routes if route.clients and not route.continues}
    for index in range(plan.longest):
        for route in plan.routes:
            if index >= len(route.clients) or (index == 0 and not route.continues):
                continue
            if plan.handover in ("server", "sealed"):
                found["s2c"] += 1
            elif route.clients[index] not in have_it:
                found["c2c" if index else "s2c"] += 1
                have_it.add(route.clients[index])
    return found
