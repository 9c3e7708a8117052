"""When a group is closed, and what becomes of the clients that are left over.

Paper: R. Zaccone et al., FedSeq, ICPR 2022 (K_S,max and |D_S|min).

Rule: a group is closed when it has `min_samples` samples or `max_clients` clients. When the clients run out, the
open group stays if it has enough samples; else its clients go one by one, in turn, to the groups with room, those with
the fewest samples first.

Deviations: when the last group is too small and the others have no room for it, it is kept (the authors' code stops).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrelay.routes.base import Groups

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bounds:
    """The size at which a group is closed."""

    max_clients: int
    min_samples: int

    def closes(self, clients: int, samples: int) -> bool:
        """Whether a group of this size takes nobody else."""
        return samples >= self.min_samples or clients >= self.max_clients


def fill(order: Iterable[int], sizes: NDArray[np.int64], bounds: Bounds) -> Groups:
    """Fill one group after another in this order, and settle what remains."""
    groups: list[list[int]] = []
    last: list[int] = []
    held = 0
    for client in order:
        last.append(client)
        held += int(sizes[client])
        if bounds.closes(len(last), held):
            groups.append(last)
            last, held = [], 0
    return settled(groups, last, sizes, bounds)


def settled(groups: list[list[int]], last: list[int], sizes: NDArray[np.int64], bounds: Bounds) -> Groups:
    """The closed groups, with the clients of the last, open one dealt out among them if they have room."""
    room = sum(max(0, bounds.max_clients - len(group)) for group in groups)
    if room < len(last):
        log.warning(
            "the last group stays small (%d client%s): no other group has room", len(last), "s"[: len(last) > 1]
        )
        groups, last = [*groups, last], []
    by_samples = sorted(groups, key=lambda group: int(sizes[group].sum()))
    turn = 0
    for client in last:
        while len(by_samples[turn % len(groups)]) >= bounds.max_clients:
            turn += 1
        by_samples[turn % len(groups)].append(client)
        turn += 1
    return tuple(tuple(group) for group in groups)
