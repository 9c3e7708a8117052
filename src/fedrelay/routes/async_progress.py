"""Where models are that travel without waiting for each other (FedAsyncSeq), from one merge to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, order=True)
class GroupLeg:
    """The model of a slot on its way through one group."""

    slot: int
    group: int
    clients: tuple[int, ...]


@dataclass(frozen=True)
class AsyncProgress:
    """The progress of all models since the last merge; tuples have one entry for each slot."""

    since: int
    """The first round after the merge."""

    finished: tuple[int, ...]
    """How many groups each model has finished."""

    last_group: tuple[int | None, ...]
    """The group that each model left last; None: it has not been in any."""

    decisions: int = 0
    """How often it was decided which model goes where."""

    under_way: tuple[GroupLeg, ...] = ()

    @classmethod
    def after(cls, since: int, groups: Sequence[Sequence[int]]) -> AsyncProgress:
        """The progress when the models have been through these groups and none is under way."""
        finished = tuple(map(len, groups))
        return cls(since, finished, tuple(each[-1] if each else None for each in groups), max(finished))

    @property
    def fastest(self) -> int:
        """The most groups that one model has finished."""
        return max(self.finished)

    def started(self, legs: Sequence[GroupLeg]) -> AsyncProgress:
        """The progress after one more decision, which started these legs."""
        return replace(self, decisions=self.decisions + 1, under_way=(*self.under_way, *legs))

    def ended(self, legs: Sequence[GroupLeg], failed: Sequence[GroupLeg] = ()) -> AsyncProgress:
        """The progress after these legs ended. A model whose leg failed has not finished the group."""
        finished, last_group = list(self.finished), list(self.last_group)
        for leg in (*legs, *failed):
            last_group[leg.slot] = leg.group
        for leg in legs:
            finished[leg.slot] += 1
        rest = tuple(leg for leg in self.under_way if leg not in legs and leg not in failed)
        return replace(self, finished=tuple(finished), last_group=tuple(last_group), under_way=rest)


LegsForFreeModels = Callable[[AsyncProgress], tuple[GroupLeg, ...]]
"""Decides which free model goes to which idle group now."""
