"""How many clients a sealed route needs, so that its end shows no single client's work."""

from __future__ import annotations

from collections.abc import Iterable

from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import Payload


def least_clients(terms: Iterable[Term]) -> int:
    """The least number of different clients whose work must be in a model before the server may see it.

    The server knows the start of a route and sees its end: the model and each payload, which are sums over its clients.
    Each is one equation in the clients' changes, so there must be more clients than tensors. With two clients, the sum
    of SCAFFOLD's control variates and the model together give both changes exactly.
    """
    payloads = sum(isinstance(tensor, Payload) and not tensor.scalar for term in terms for tensor in term.tensors)
    return 2 + payloads
