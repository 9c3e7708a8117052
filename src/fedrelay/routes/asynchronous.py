"""FedAsyncSeq: models go from group to group without waiting for each other.

Paper: A. Silvi, A. Rizzardi, D. Caldarola, B. Caputo, M. Ciccone. Accelerating Federated Learning via Sequential
Training of Grouped Heterogeneous Clients. IEEE Access 2024.

Rule: W = max(1, ⌊C·N_S⌋) models start at time 0 in different groups. How long a group takes is given by the virtual
clock or, in a real federation, by the model's arrival. A model that is done goes at once to a random idle group other
than the one it left. A round ends when the fastest model has done one group more. After R rounds the latest finished
models are merged, each with all its hops since the last merge. A model that has not finished a group yet is left out,
unfinished work is discarded, and all start again.

Deviations: the paper gives no rule for idle groups, ties and unfinished work; those above are ours. With the virtual
clock, discarded work counts neither as traffic nor as client updates; in a real federation everything that was sent
counts. With `wait`, the work is finished and counts. If no group is idle, a model waits for the first that is. If two
models go through a group in one round, the later one finds the client state that the earlier one left. If all groups
take equally long, the result is FedSeqInter, bit for bit.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Sampling
from fedrelay.routes.async_progress import AsyncProgress, GroupLeg
from fedrelay.routes.base import PlanningContext, sampled_count
from fedrelay.routes.group_to_group import PeriodicMergeRouting, next_groups
from fedrelay.routes.plan import AsyncRoundInfo, RoundPlan, Route


@dataclass(frozen=True, order=True)
class GroupLegFinish:
    """The time at which a model has finished a group."""

    time: float
    leg: GroupLeg


class Asynchronous(PeriodicMergeRouting):
    """Each route takes one model through the groups that it finished since the last round."""

    mode: Literal["latency", "sync"] = Field(
        "latency",
        description="how long groups take: latency (virtual clock; in a federation, real time) or sync (all the same)",
    )
    wait: bool = Field(False, description="finish work under way before merging, instead of discarding it")

    @model_validator(mode="after")
    def _waiting_needs_time(self) -> Self:
        if self.wait and self.mode == "sync":
            raise ValueError("wait: has no effect with mode 'sync'")
        return self

    @property
    def depends_on_arrival_times(self) -> bool:
        return self.mode == "latency"

    def check_sampling(self, sampling: Sampling) -> None:
        if sampling == "passes" and self.mode == "latency":
            raise SpecError("sampling: 'passes' does not go with models that go on to any idle group; use random")

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """One route for each slot that finished something; where arrivals are real, one for each slot."""
        if self.mode == "sync":
            return self.synchronous_plan(context, round)
        period = self.rounds_between_merges(context)
        since = round - (round - 1) % period
        merges = round % period == 0
        finished, waiting, seconds = self._finished(context, since, round, with_rest=merges and self.wait)
        clients: dict[int, tuple[int, ...]] = {}
        order: dict[int, tuple[int, ...]] = {}
        for number, leg in enumerate(finish.leg for finish in finished):
            clients[leg.slot] = clients.get(leg.slot, ()) + leg.clients
            order[leg.slot] = order.get(leg.slot, ()) + (number,) * len(leg.clients)
        if context.real_time:
            slots: Iterable[int] = _slots(context)
            info = AsyncRoundInfo(since, seconds, True, overlaps=not merges and round < context.rounds, waits=self.wait)
            order = {}
        else:
            slots, info = sorted(clients), AsyncRoundInfo(since, seconds)
            # A group trains one model at a time, so a group that finished two did so one after the other.
            if len({finish.leg.group for finish in finished}) == len(finished):
                order = {}
        routes = (Route(clients.get(slot, ()), slot, order.get(slot, ()), slot in waiting) for slot in slots)
        return RoundPlan(round, tuple(routes), self.handover, merges, asynchronous=info)

    def _finished(
        self, context: PlanningContext, since: int, round: int, *, with_rest: bool
    ) -> tuple[list[GroupLegFinish], Set[int], float]:
        """The groups finished in a round, the slots that finished one before it, and the time the round takes.

        With `with_rest`, the groups under way at its end are included.
        """
        counts: Counter[int] = Counter()
        before: Set[int] = frozenset()
        found: list[GroupLegFinish] = []
        now, began = since, 0.0
        for batch, under_way in self._batches(context, since):
            found += batch
            counts.update(finish.leg.slot for finish in batch)
            if max(counts.values()) > now - since:
                if now == round:
                    found += sorted(under_way) if with_rest else []
                    break
                now, began, found, before = now + 1, batch[0].time, [], frozenset(counts)
        return found, before, max(finish.time for finish in found) - began

    def _batches(
        self, context: PlanningContext, since: int
    ) -> Iterator[tuple[list[GroupLegFinish], list[GroupLegFinish]]]:
        """Legs that end at the same time by the virtual clock, and those still under way then, for ever."""
        progress = AsyncProgress.after(since, [()] * len(_slots(context)))
        under_way: list[GroupLegFinish] = []
        time = 0.0
        while True:
            legs = self.legs_for_free_models(context, progress)
            progress = progress.started(legs)
            for leg in legs:
                heapq.heappush(under_way, GroupLegFinish(time + context.route_seconds(leg.clients, self.handover), leg))
            time = under_way[0].time
            batch = []
            while under_way and under_way[0].time == time:
                batch.append(heapq.heappop(under_way))
            progress = progress.ended([finish.leg for finish in batch])
            yield batch, list(under_way)

    def legs_for_free_models(self, context: PlanningContext, progress: AsyncProgress) -> tuple[GroupLeg, ...]:
        """Which free model goes to which idle group now."""
        key = progress.since + progress.decisions
        return tuple(
            GroupLeg(slot, group, self.clients_in_order(context, key, group, context.groups[group]))
            for slot, group in _assigned(context, key, progress)
        )


def _slots(context: PlanningContext) -> Sequence[int]:
    return range(sampled_count(len(context.groups), context.fraction))


def _assigned(context: PlanningContext, key: int, progress: AsyncProgress) -> Iterator[tuple[int, int]]:
    """(slot, group) for the models that are free, as far as groups are idle."""
    if not progress.under_way:  # all are free, as in every round of FedSeqInter
        yield from enumerate(next_groups(context, key, progress.last_group))
        return
    order = context.rng("idle", progress.since, progress.decisions).permutation(len(context.groups)).tolist()
    away, busy = {leg.slot for leg in progress.under_way}, {leg.group for leg in progress.under_way}
    idle = [group for group in order if group not in busy]
    for slot, left in enumerate(progress.last_group):
        group = next((group for group in idle if group != left), None)
        if slot not in away and group is not None:
            idle.remove(group)
            yield slot, group
