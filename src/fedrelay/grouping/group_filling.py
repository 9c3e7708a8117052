"""When a group is complete, and what happens to the clients that remain.

Paper: R. Zaccone et al., FedSeq, ICPR 2022 (K_S,max and |D_S|min).

Rule: a group is complete when it has `min_samples` samples or `max_clients` clients. The clients of the last,
incomplete group are distributed one by one over the groups that have fewer than `max_clients`, groups with the fewest
samples first. If these have too little room, the last group stays, and takes clients from the largest groups until they
differ by one client at most: 100 clients in groups of at most 11 are ten groups of 10. A group with `min_samples` gives
no client away that it needs for them.

Deviations: the authors' code stops if there is too little room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

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


def fill_groups(order: Sequence[int] | NDArray[np.int64], sizes: NDArray[np.int64], bounds: GroupSizeBounds) -> Groups:
    """Fill one group after another with clients in this order, then distribute the rest."""
    ordered = np.asarray(order)
    clients: tuple[int, ...] = tuple(ordered.tolist())
    before = np.concatenate([[0], np.cumsum(sizes[ordered])])
    # For each place, where a group ends that begins there, at once because there may be a million clients. Past the
    # end of the order: it does not become complete.
    enough = np.searchsorted(before, before[:-1] + bounds.min_samples)
    ends: list[int] = np.minimum(enough, np.arange(len(clients)) + bounds.max_clients).tolist()
    groups: list[tuple[int, ...]] = []
    begin = 0
    while begin < len(clients) and ends[begin] <= len(clients):
        groups.append(clients[begin : ends[begin]])
        begin = ends[begin]
    return distribute_rest(groups, clients[begin:], sizes, bounds)


def distribute_rest(
    complete: Iterable[Sequence[int]], last: Sequence[int], sizes: NDArray[np.int64], bounds: GroupSizeBounds
) -> Groups:
    """The complete groups, with the clients of the last, incomplete group distributed over them if they have room."""
    groups = list(map(tuple, complete))
    room = sum(max(0, bounds.max_clients - len(group)) for group in groups)
    if room < len(last):
        return _with_last_group(groups, last, sizes, bounds)
    if not last:
        return tuple(groups)
    by_samples = np.argsort(_samples(groups, sizes), kind="stable").tolist()
    position = 0
    for client in last:
        while len(groups[by_samples[position % len(groups)]]) >= bounds.max_clients:
            position += 1
        groups[by_samples[position % len(groups)]] += (client,)
        position += 1
    return tuple(groups)


def _samples(groups: Sequence[Sequence[int]], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of samples of each group; none is empty."""
    members = np.fromiter(chain.from_iterable(groups), np.int64)
    starts = np.cumsum([0, *map(len, groups[:-1])])
    found: NDArray[np.int64] = np.add.reduceat(sizes[members], starts)
    return found


def _with_last_group(
    complete: Sequence[Sequence[int]], rest: Sequence[int], sizes: NDArray[np.int64], bounds: GroupSizeBounds
) -> Groups:
    """All groups, after larger ones gave clients to the last one; those that joined them last go first."""
    groups, last = list(map(list, complete)), list(rest)

    def can_spare(group: list[int], samples: int) -> bool:
        return samples < bounds.min_samples or samples - int(sizes[group[-1]]) >= bounds.min_samples

    samples = _samples(groups, sizes).tolist() if groups else []
    givers = [group for group, count in zip(groups, samples, strict=True) if can_spare(group, count)]
    while givers and len(largest := max(givers, key=len)) > len(last) + 1:
        last.append(largest.pop())
        if not can_spare(largest, int(sizes[largest].sum())):
            givers.remove(largest)
    if groups and len(last) + 1 < max(map(len, groups)):
        log.warning(
            "group %d has only %d clients with %d samples, fewer than grouping.min_samples=%d; the other groups need "
            "their clients to have as many; raise grouping.max_clients or lower grouping.min_samples",
            len(groups) + 1,
            len(last),
            int(sizes[last].sum()),
            bounds.min_samples,
        )
    return tuple(map(tuple, (*groups, last)))
