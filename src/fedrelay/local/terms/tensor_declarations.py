"""The tensors of a term. A term declares each tensor once: its name, and who keeps or sends it.

Every tensor has the size of the model, or is one number, and starts as zeros. Names must be unique among the client
states of a method, and among its server states and payloads together: a payload that came back may start the next
route.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ClientState:
    """A tensor that each client keeps from one hop to its next one."""

    name: str
    additive: bool = True
    """What happens when two routes reach the same client in the same step: both changes are added, or (False) the route
    with the higher number wins."""

    scalar: bool = False
    """Whether it is one number instead of a tensor of the model's size."""

    # Not in `repr`, by which a run folder notices that a term has other tensors than when its run was started.
    until_merge: bool = field(default=False, repr=False)
    """Whether it lasts until the next merge: the client's first hop after a merge finds zeros again."""

    added_at_merge_to: str = field(default="", repr=False)
    """With `until_merge`: the client state of the same size that it is added to at the merge; empty: it is dropped."""


@dataclass(frozen=True)
class ServerState:
    """A tensor that the server keeps and sends to every client together with the model."""

    name: str
    scalar: bool = False
    """Whether it is one number instead of a tensor of the model's size."""


@dataclass(frozen=True)
class Payload:
    """A tensor that travels along a route with the model and comes back to the server."""

    name: str
    resumes: bool = False
    """Whether a route starts with the server state of the same name; otherwise it starts with zeros."""

    sent: bool = True
    """Whether the ledger counts it as a transfer. False where the server sees every model and can compute it itself."""

    scalar: bool = False
    """Whether it is one number instead of a tensor of the model's size."""

    adds_up: bool = field(default=False, repr=False)
    """Whether every client adds its share and changes nothing else, so that the end of a route has a plain sum. Only
    such tensors may travel on sealed routes: others show the last client more than the ones before."""


TermTensor = ClientState | ServerState | Payload


def value_count(tensor: TermTensor, model_size: int) -> int:
    """How many values a tensor has beside a model of this size."""
    return 1 if tensor.scalar else model_size
