"""The tensors of a term: each is declared once, as a value that says where it lives and how it gets about.

All are as large as the model and zero at first. A name may be used once at clients and once on the way: what the server
tells and what is carried go by the same names, because what was carried home may set off again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClientState:
    """Kept by each client from one turn to the next."""

    name: str
    adds_up: bool = True
    """Whether what two routes change at the same client in the same turn adds up; otherwise the later route's stays."""


@dataclass(frozen=True)
class ServerState:
    """Kept by the server and sent along with the model."""

    name: str


@dataclass(frozen=True)
class Payload:
    """Baggage: it travels along a route and comes home with the model."""

    name: str
    resumes: bool = False
    """Whether it sets off as what the server made of it at the last merge; otherwise as zeros."""

    sent: bool = True
    """Whether it costs a transfer; not so where the server sees every model and can do the sums itself."""


TermTensor = ClientState | ServerState | Payload
