"""FedSeq: one model travels through each sampled group of clients ("superclient"), then these models are merged.

Paper: R. Zaccone, A. Rizzardi, D. Caldarola, M. Ciccone, B. Caputo. Speeding up Heterogeneous Federated
Learning with Sequentially Trained Superclients. ICPR 2022.

Rule: clients are grouped once. Each round samples G = max(1, ⌊C·N_S⌋) groups. A copy of the global model goes through
the clients of each sampled group, `loops` times, in a new random order each time, and back to the server. With
`sampling: passes` all groups are visited before any is visited again. Then `regroup: pass` forms new groups for each
pass, from the same profiles: a pass takes ⌈N_S/G⌉ rounds, over which its groups are spread as evenly as possible, so
that every client trains exactly once in each pass. A pass with fewer groups than rounds splits its largest ones.

Deviations: none in the route; passes and `regroup` are ours. Groups are random unless another grouping is set. With
`order: fixed` and `handover: server` it is the NaiveGSP of S. Zeng et al., FedGSP, DASFAA 2022: a model visits the
clients of a group always in the same order, and a manager passes it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
from pydantic import Field

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Sampling
from fedrelay.routes.base import Groups, PlanningContext, sample, sampled_count
from fedrelay.routes.group_routing import GroupRouting
from fedrelay.routes.plan import RoundPlan, Route


class Chains(GroupRouting):
    """One route for each sampled group, through its clients."""

    regroup: Literal["never", "pass"] = Field(
        "never", description="when to form new groups: never, or for each pass over all clients (sampling: passes)"
    )

    @property
    def regroups(self) -> bool:
        return self.regroup == "pass"

    def check_sampling(self, sampling: Sampling) -> None:
        if self.regroups and sampling != "passes":
            raise SpecError(f"route.regroup: 'pass' needs sampling 'passes', got {sampling!r}")

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        groups = context.groups
        sampled: Iterable[int]
        if self.regroups:
            groups, sampled = _groups_of_pass(context, round)
        else:
            sampled = sample(context, round, len(groups))
        routes = (Route(self.clients_in_order(context, round, group, groups[group])) for group in sampled)
        return RoundPlan(round, tuple(routes), self.handover)


def _groups_of_pass(context: PlanningContext, round: int) -> tuple[Groups, list[int]]:
    """The groups of a round's pass, and the numbers of those that are visited in the round."""
    count = len(context.groups)
    rounds = -(-count // sampled_count(count, context.fraction))
    number, place = divmod(round - 1, rounds)
    groups = _at_least(rounds, context.regroup(count, number + 1))
    order = context.rng("pass", number).permutation(len(groups))
    return groups, np.array_split(order, rounds)[place].tolist()


def _at_least(count: int, groups: Groups) -> Groups:
    """The groups, of which the largest are halved until there are enough; there are as many clients as that."""
    while len(groups) < count:
        largest = max(groups, key=len)
        rest = tuple(group for group in groups if group is not largest)
        groups = (*rest, largest[: len(largest) // 2], largest[len(largest) // 2 :])
    return groups
