"""CyCP: groups of clients take turns, and in each round clients of one group train side by side.

Paper: Y. J. Cho, P. Sharma, G. Joshi, Z. Xu, S. Kale, T. Zhang. On the Convergence of Federated Averaging with Cyclic
Client Participation. ICML 2023.

Rule: clients are in groups, such as time zones, that are available one after another in a fixed order, again and again.
In round t, m = max(1, ⌊C·K⌋) clients of group (t mod number of groups) are sampled without replacement, and each trains
the global model on its own.

Deviations: a group with fewer than m clients takes part as a whole. Groups are formed by `grouping`, by default at
random; they take turns in the order in which they were formed. With `sampling: passes`, all clients of a group take
part before any of them does again.
"""

from __future__ import annotations

from typing import ClassVar

from fedrelay.routes.base import PlanningContext, Routing, draw, sampled_count
from fedrelay.routes.plan import RoundPlan, Route


class CyclicParticipation(Routing):
    """One route of one hop for each sampled client of the group whose turn it is."""

    needs_groups: ClassVar[bool] = True

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        turns_before, number = divmod(round - 1, len(context.groups))
        group = context.groups[number]
        count = min(len(group), sampled_count(context.client_count, context.fraction))
        places = draw(context, round, len(group), count, turn=turns_before + 1)
        return RoundPlan(round, tuple(Route((group[place],)) for place in places))
