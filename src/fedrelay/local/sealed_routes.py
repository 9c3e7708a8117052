"""What a sealed route needs, so that its end shows no single client's work: enough clients, and settings with which the
work of none of them outweighs or erases that of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.local.trainer import TrainingJob, steps_of_hop
from fedrelay.routes.plan import Hop

LEAST_RATE = 0.1
"""The least learning rate of a hop, as a share of the largest on its route."""

LEAST_KEPT = 0.5
"""The least share of the received weights that weight decay leaves in one hop."""

MOST_PULL = 0.1
"""The largest share of the way to its anchor by which one step of a proximal term moves a model."""


def least_clients(terms: Iterable[Term]) -> int:
    """The least number of different clients whose work must be in a model before the server may see it.

    The server knows the start of a route and sees its end: the model and each payload, which are sums over its clients.
    Each is one equation in the clients' changes, so there must be more clients than tensors. With two clients, the sum
    of SCAFFOLD's control variates and the model together give both changes exactly.
    """
    payloads = sum(isinstance(tensor, Payload) and not tensor.scalar for term in terms for tensor in term.tensors)
    return 2 + payloads


def uneven_payload(terms: Iterable[Term]) -> str:
    """The name of a payload that is no plain sum over the clients of a route; empty if there is none."""
    tensors = (tensor for term in terms for tensor in term.tensors if isinstance(tensor, Payload))
    return next((tensor.name for tensor in tensors if not tensor.scalar and not tensor.adds_up), "")


def uneven_settings(job: TrainingJob, hop: Hop) -> str:
    """Why settings would show the work of some clients of a route far more than that of others; empty if they do not.

    Args:
        job: The job, at the client itself.
        hop: Its hop.
    """
    rates = [job.learning_rate(replace(hop, index=index)) for index in range(hop.route_length)]
    if min(rates) < LEAST_RATE * max(rates) * (1 - 1e-9):
        return f"train.chain_schedule: the rates of a sealed route differ by {1 / LEAST_RATE:g} times at most"
    rate = job.learning_rate(hop)
    steps = steps_of_hop(job.train, job.federation.sample_count(hop.client), drop_last=False)
    if max(0.0, 1 - rate * job.train.weight_decay) ** steps < LEAST_KEPT:
        return (
            f"train.weight_decay: {job.train.weight_decay:g} erases more than half of what a client of a sealed route "
            "receives; use less"
        )
    for term in job.terms:
        if rate * term.proximal_strength_for_merge > MOST_PULL:
            return f"terms: a proximal term of a sealed route has mu times train.lr up to {MOST_PULL:g}; use less"
    return ""
