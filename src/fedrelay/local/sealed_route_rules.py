"""What a sealed route needs, so that its end shows no single client's work: enough clients, and settings with which the
work of none of them outweighs or erases that of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.plan import Hop

LEAST_RATE = 0.1
"""The least learning rate of a hop, as a share of the largest on its route."""

LEAST_KEPT = 0.5
"""The least share of the received weights that weight decay leaves in one hop, and of their change that terms leave."""

MOST_PULL = 0.1
"""The largest share of the way to its anchor by which one step of a term moves a model."""


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


def uneven_rates(job: TrainingJob, hop: Hop) -> str:
    """Why rates would show the work of some clients of a hop's route far more than others'; empty if they do not."""
    rates = [job.learning_rate(replace(hop, index=index)) for index in range(hop.route_length)]
    if min(rates) < LEAST_RATE * max(rates) * (1 - 1e-9):
        return f"train.chain_schedule: the rates of a sealed route differ by {1 / LEAST_RATE:g} times at most"
    return ""


def erasing_settings(job: TrainingJob, hop: Hop) -> str:
    """Why a hop would erase the work of the clients before it; empty if it does not."""
    rate = job.learning_rate(hop)
    steps = job.steps_with(job.federation.sample_count(hop.client))
    if max(0.0, 1 - rate * job.train.weight_decay) ** steps < LEAST_KEPT:
        return (
            f"train.weight_decay: {job.train.weight_decay:g} erases more than half of what a client of a sealed route "
            "receives; use less"
        )
    for term in job.terms:
        pull = rate * term.pull_to_anchor(job.relative_size(hop.client))
        if pull > MOST_PULL:
            return f"terms: a term of a sealed route pulls to its anchor by up to {MOST_PULL:g} / train.lr; use less"
        if term.needs_round_model and (1 - pull) ** steps < LEAST_KEPT:
            return (
                f"terms: a pull of {pull / rate:g} to the round's model erases more than half of what a client of a "
                "sealed route has changed; use less, or anchor=recv"
            )
    return ""
