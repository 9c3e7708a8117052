"""The order in which a model visits clients that differ in size or in classes.

Papers: chains of unequal institutions are the subject of N. Balachandar, K. Chang, J. Kalpathy-Cramer, D. L. Rubin.
Accounting for data variability in multi-institutional distributed deep learning for medical imaging. Journal of the
American Medical Informatics Association 27, 2020, which keeps their order. `complement` is the idea of FedSeq's greedy
groups (R. Zaccone et al., ICPR 2022) within a chain.

Rules:
- `random`: drawn anew each time. `fixed`: by client number, or as the group lists its clients.
- `size`: from the client with the fewest samples to the one with the most. Equal clients: by number.
- `given`: as `given` lists the clients, by name or number.
- `complement`: the first client is drawn at random; then always the client that makes the classes seen so far most
  even. With n_c labels of class c so far, the next client minimises Σ (n_c/Σn − 1/C)²; of equal ones the first in a
  random order.
- `best-last`, `worst-last`: the client whose classes are most, or least, like those of all clients together comes last,
  by total variation ½ Σ |p_c − q_c|. They are controls: how much does it matter whose samples are seen last?

Deviations: all orders but `random` and `fixed` are ours. `best` could mean the client with the best model, but nobody
knows that before training, and an order that followed the training could not be planned ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import nearest

if TYPE_CHECKING:
    from fedrelay.routes.base import PlanningContext

ClientOrder = Literal["random", "fixed", "size", "given", "complement", "best-last", "worst-last"]

ORDERS_BY_CLASSES = frozenset({"complement", "best-last", "worst-last"})
"""The orders that need the class counts of all clients."""

GIVEN_HELP = "order given: the names or numbers of all clients, in the order of visits"

Counts = NDArray[np.int64]


def by_size(clients: Sequence[int], size: Callable[[int], int]) -> tuple[int, ...]:
    """Clients from the fewest samples to the most."""
    return tuple(sorted(clients, key=lambda client: (size(client), client)))


def as_given(clients: Sequence[int], given: Sequence[int | str], context: PlanningContext) -> tuple[int, ...]:
    """Clients in the order in which `given` lists all clients of the federation.

    Raises:
        SpecError: A client is unknown, missing or listed twice.
    """
    names = context.client_names() or tuple(map(str, range(context.client_count)))
    place: dict[int, int] = {}
    for each in given:
        client = each if isinstance(each, int) else names.index(each) if each in names else -1
        if not 0 <= client < context.client_count:
            hint = f"{nearest(str(each), names)}; clients are {_some(names)}"
            raise SpecError(f"route.given: there is no client {each!r}{hint}")
        if client in place:
            raise SpecError(f"route.given: client {each!r} is listed twice")
        place[client] = len(place)
    missing = [names[client] for client in range(context.client_count) if client not in place]
    if missing:
        raise SpecError(f"route.given: must list all {context.client_count} clients; missing: {_some(missing)}")
    return tuple(sorted(clients, key=place.__getitem__))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def complementing(
    clients: Sequence[int], class_counts: Callable[[int], Counts], rng: np.random.Generator
) -> tuple[int, ...]:
    """Clients in an order in which each complements the classes of those before it."""
    left = rng.permutation(np.asarray(clients)).tolist()
    counts = np.array([class_counts(client) for client in left], dtype=float).reshape(len(left), -1)
    seen, found = np.zeros(counts.shape[1]), list[int]()
    while left:
        together = seen + counts
        shares = together / np.maximum(together.sum(axis=1, keepdims=True), 1)
        unevenness = ((shares - 1 / counts.shape[1]) ** 2).sum(axis=1)
        # Rounded, so that sums of the same counts in another order are equal.
        chosen = int(np.argmin(unevenness.round(12))) if found else 0
        seen = together[chosen]
        found.append(int(left.pop(chosen)))
        counts = np.delete(counts, chosen, axis=0)
    return tuple(found)


def by_likeness(
    clients: Sequence[int], class_counts: Callable[[int], Counts], everyone: Counts, *, best_last: bool
) -> tuple[int, ...]:
    """Clients by how much their classes are like those of everyone together; equal ones by number."""
    overall = everyone / np.maximum(everyone.sum(), 1)

    def difference(client: int) -> float:
        counts = class_counts(client)
        return float(np.abs(counts / np.maximum(counts.sum(), 1) - overall).sum().round(12)) / 2

    sign = -1 if best_last else 1
    return tuple(sorted(clients, key=lambda client: (sign * difference(client), client)))
