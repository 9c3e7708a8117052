"""What every grouping has in common: it splits clients into groups that are large enough and not too large."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrelay.routes.base import Groups
from fedrelay.spec import Section

log = logging.getLogger(__name__)


class Grouping(Section, ABC):
    """A way to form groups, and the bounds every group keeps."""

    max_clients: int = Field(11, ge=1, description="a group with this many clients is closed (K_S,max)")
    min_samples: int = Field(800, ge=1, description="a group with this many samples is closed (|D_S|min)")

    @abstractmethod
    def form(self, sizes: NDArray[np.int64], seed: int) -> Groups:
        """A partition of all clients that hold data."""

    def fill(self, order: Iterable[int], sizes: NDArray[np.int64]) -> Groups:
        """Fill groups one client at a time, closing each at its bounds, and deal out what remains.

        The clients of a last group with too few samples go one by one to the groups with room, those with the fewest
        samples first. Where no group has room, the small group stays as it is.
        """
        groups: list[list[int]] = []
        open_group: list[int] = []
        held = 0
        for client in order:
            open_group.append(client)
            held += int(sizes[client])
            if held >= self.min_samples or len(open_group) >= self.max_clients:
                groups.append(open_group)
                open_group, held = [], 0
        if open_group:
            self._deal_out(open_group, groups, sizes)
        return tuple(tuple(group) for group in groups)

    def _deal_out(self, leftovers: list[int], groups: list[list[int]], sizes: NDArray[np.int64]) -> None:
        room = sum(max(0, self.max_clients - len(group)) for group in groups)
        if room < len(leftovers):
            log.warning(
                "the last group stays small (%d client%s): no other group has room",
                len(leftovers),
                "s"[: len(leftovers) > 1],
            )
            groups.append(leftovers)
            return
        by_samples = sorted(groups, key=lambda group: int(sizes[group].sum()))
        turn = 0
        for client in leftovers:
            while len(by_samples[turn % len(groups)]) >= self.max_clients:
                turn += 1
            by_samples[turn % len(groups)].append(client)
            turn += 1
