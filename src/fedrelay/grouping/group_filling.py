"""When a group is complete, and what happens to the clients that remain.

Paper: R. Zaccone et al., FedSeq, ICPR 2022 (K_S,max and |D_S|min).

Rule: a group is complete when it has `min_samples` samples or `max_clients` clients. The clients of the last,
incomplete group are distributed one by one over the groups that have fewer than `max_clients`, groups with the fewest
samples first.

Deviations: if the other groups have no room for the last group, it is kept although it has too few samples (the
authors' code stops).
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
class GroupSizeBounds:
    """The size at which a group is complete."""

    max_clients: int
    min_samples: int

    def complete(self, clients: int, samples: int) -> bool:
        """Whether a group of this size takes no more clients."""
        return samples >= self.min_samples or clients >= self.max_clients


def fill_groups(order: Iterable[int], sizes: NDArray[np.int64], bounds: GroupSizeBounds) -> Groups:
    """Fill one group after another with clients in this order, then distribute the rest."""
    groups: list[list[int]] = []
    last: list[int] = []
    samples = 0
    for client in order:
        last.append(client)
        samples += int(sizes[client])
        if bounds.complete(len(last), samples):
            groups.append(last)
            last, samples = [], 0
    return distribute_rest(groups, last, sizes, bounds)


def distribute_rest(
    groups: list[list[int]], last: list[int], sizes: NDArray[np.int64], bounds: GroupSizeBounds
) -> Groups:
    """The complete groups, with the clients of the last, incomplete group distributed over them if they have room."""
    room = sum(max(0, bounds.max_clients - len(group)) for group in groups)
    if room < len(last):
        log.debug(
            "group %d has %d samples, fewer than grouping.min_samples=%d; the other groups are full",
            len(groups) + 1,
            int(sizes[last].sum()),
            bounds.min_samples,
        )
        groups, last = [*groups, last], []
    by_samples = sorted(groups, key=lambda group: int(sizes[group].sum()))
    position = 0
    for client in last:
        while len(by_samples[position % len(groups)]) >= bounds.max_clients:
            position += 1
        by_samples[position % len(groups)].append(client)
        position += 1
    return tuple(tuple(group) for group in groups)
