"""FedSeqInter: models go from group to group and are merged only every few rounds.

Paper: R. Zaccone, A. Rizzardi, D. Caldarola, M. Ciccone, B. Caputo. Speeding up Heterogeneous Federated
Learning with Sequentially Trained Superclients. ICPR 2022. It equals FedAsyncSeq if all groups take equally long.

Rule: there are W = max(1, ⌊C·N_S⌋) models, each in a slot. Each round samples W groups, and the model of slot i goes
through the i-th of them. After rounds R, 2R, … the models are merged, each with all its hops since the last merge, and
all slots continue with the merged model. In other rounds, the mean of the models is evaluated, and they travel on.

Deviations: R is the number of groups by default, as in the paper. A model does not return to the group it has just
left: if that group is drawn, it swaps with the next slot, or draws again if there is only one slot (not with `sampling:
passes`, where a model returns to a group that ends one pass and begins the next). The defaults of
FedProx (μ) and FedDyn (α) are 1, as in the paper.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator

from fedrelay.routes.base import PlanningContext, sample
from fedrelay.routes.group_routing import GroupRouting
from fedrelay.routes.plan import RoundPlan, Route


class PeriodicMergeRouting(GroupRouting):
    """Base class of routes whose models wait in slots between merges."""

    period: PositiveInt | Literal["never"] | None = Field(
        None, description="number of rounds between merges (R), or never; default: the number of groups"
    )

    @field_validator("period", mode="before")
    @classmethod
    def _rounds_or_never(cls, value: Any) -> Any:
        if value in (None, "never") or (str(value).isdecimal() and int(value) > 0):
            return value
        raise ValueError("must be a number of rounds, at least 1, or 'never'")

    @property
    def ever_merges(self) -> bool:
        return self.period != "never"

    def rounds_between_merges(self, context: PlanningContext) -> int:
        """R; for `never` a number larger than the number of rounds."""
        if self.period == "never":
            return context.rounds + 1
        return self.period or len(context.groups)

    def synchronous_plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """One route for each slot, through one sampled group."""
        period = self.rounds_between_merges(context)
        since = round - (round - 1) % period
        routes = (
            Route(self.clients_in_order(context, round, group, context.groups[group]), slot, continues=round > since)
            for slot, group in enumerate(visited_groups(context, round, since))
        )
        return RoundPlan(round, tuple(routes), self.handover, merges=round % period == 0)


class GroupToGroup(PeriodicMergeRouting):
    """One route for each slot: its model goes through one sampled group."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        return self.synchronous_plan(context, round)


def visited_groups(context: PlanningContext, round: int, since: int) -> tuple[int, ...]:
    """The group that each slot's model visits in a round; `since` is the first round after the last merge."""
    groups: tuple[int, ...] = ()
    for each in range(since, round + 1):
        groups = next_groups(context, each, groups)
    return groups


def next_groups(context: PlanningContext, round: int, left: tuple[int | None, ...]) -> tuple[int, ...]:
    """The next group of each slot: never the group that its model has just left, if there are others."""
    population = PlanningContext(len(context.groups), context.fraction, context.seed, sampling=context.sampling)
    return _next_groups(population, round, left)


@lru_cache(maxsize=1 << 14)
def _next_groups(context: PlanningContext, round: int, left: tuple[int | None, ...]) -> tuple[int, ...]:
    population = context.client_count
    groups = list(sample(context, round, population))
    for slot, before in enumerate(left):
        if before is None:
            continue
        if groups[slot] == before and len(groups) > 1:
            other = (slot + 1) % len(groups)
            groups[slot], groups[other] = groups[other], groups[slot]
        elif groups[slot] == before and population > 1 and context.sampling == "random":
            step = int(context.rng("another", round).integers(1, population))
            groups[slot] = (before + step) % population
    return tuple(groups)
