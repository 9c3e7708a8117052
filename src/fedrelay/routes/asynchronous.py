"""FedAsyncSeq: models go from group to group without waiting for each other.

Paper: A. Silvi, A. Rizzardi, D. Caldarola, B. Caputo, M. Ciccone. Accelerating Federated Learning via Sequential
Training of Grouped Heterogeneous Clients. IEEE Access 2024.

Rule: W = max(1, ⌊C·N_S⌋) models set off at time 0 to different groups. How long a group takes is told by the virtual
clock. A model that is done goes at once to a random idle group other than the one it left. A round ends when the
fastest model has done one group more. After R rounds the latest finished models are averaged by the samples they have
seen; a model that has not finished a group yet is left out, work under way is given up, and all set off again.

Deviations: the paper gives no rule for idle groups, ties and work under way; those above are ours. What is given up
counts neither as traffic nor as client updates. With `wait` it is finished and counts. If no group is idle, a model
waits for the first that is. Where all groups take equally long it is FedSeqInter, bit for bit.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from fedrelay.routes.base import Scene, sampled_count
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.routes.slots import SlotTrips, next_groups


@dataclass(frozen=True, order=True)
class Finish:
    """A model is done with a group."""

    time: float
    slot: int
    group: int
    trip: tuple[int, ...]
    """The clients, in the order of their turns."""


class Asynchronous(SlotTrips):
    """Every trip takes a model through the groups it finished since the last round."""

    mode: Literal["latency", "sync"] = Field(
        "latency", description="groups take as long as the virtual clock says, or all the same"
    )
    wait: bool = Field(False, description="finish work under way before merging, instead of giving it up")

    @model_validator(mode="after")
    def _waiting_needs_time(self) -> Self:
        if self.wait and self.mode == "sync":
            raise ValueError("wait: has no effect with mode 'sync'")
        return self

    def plan(self, scene: Scene, round: int) -> RoundPlan:
        """One route for each slot that finished something."""
        if self.mode == "sync":
            return self.in_step(scene, round)
        period = self.rounds_between_merges(scene)
        since = round - (round - 1) % period
        merges = round % period == 0
        finished, seconds = self._finished(scene, since, round, with_rest=merges and self.wait)
        trips: dict[int, tuple[int, ...]] = {}
        for finish in finished:
            trips[finish.slot] = trips.get(finish.slot, ()) + finish.trip
        routes = tuple(Route(trips[slot], slot) for slot in sorted(trips))
        return RoundPlan(round, routes, self.relay, merges, seconds)

    def _finished(self, scene: Scene, since: int, round: int, *, with_rest: bool) -> tuple[list[Finish], float]:
        """What is finished in a round, and how long it takes; with the rest also what is under way at its end."""
        counts: Counter[int] = Counter()
        found: list[Finish] = []
        now, began = since, 0.0
        for batch, under_way in self._batches(scene, since):
            found += batch
            counts.update(finish.slot for finish in batch)
            if max(counts.values()) > now - since:
                if now == round:
                    found += sorted(under_way) if with_rest else []
                    break
                now, began, found = now + 1, batch[0].time, []
        return found, max(finish.time for finish in found) - began

    def _batches(self, scene: Scene, since: int) -> Iterator[tuple[list[Finish], list[Finish]]]:
        """Finishes at the same time, and what is under way then, for ever."""
        slots = range(sampled_count(len(scene.groups), scene.fraction))
        under_way: list[Finish] = []
        left: dict[int, int] = {}
        free = list(slots)
        time, draw = 0.0, 0
        while True:
            for slot, group in self._assigned(scene, since, draw, free, left, {each.group for each in under_way}):
                trip = self.trip(scene, since + draw, group, scene.groups[group])
                heapq.heappush(under_way, Finish(time + scene.duration(trip, self.relay), slot, group, trip))
            draw += 1
            time = under_way[0].time
            batch = []
            while under_way and under_way[0].time == time:
                batch.append(heapq.heappop(under_way))
            yield batch, list(under_way)
            free = sorted({finish.slot for finish in batch} | (set(slots) - {each.slot for each in under_way}))
            left |= {finish.slot: finish.group for finish in batch}

    def _assigned(
        self, scene: Scene, since: int, draw: int, free: list[int], left: dict[int, int], busy: set[int]
    ) -> Iterator[tuple[int, int]]:
        """(slot, group) for the models that are free, as far as groups are idle."""
        if not busy:  # all are free, as in every round of FedSeqInter
            yield from enumerate(next_groups(scene, since + draw, tuple(left[slot] for slot in sorted(left))))
            return
        order = scene.rng("idle", since, draw).permutation(len(scene.groups)).tolist()
        idle = [group for group in order if group not in busy]
        for slot in free:
            group = next((group for group in idle if group != left.get(slot)), None)
            if group is not None:
                idle.remove(group)
                yield slot, group
