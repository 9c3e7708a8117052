"""FedSeq: one model travels through each sampled group of clients ("superclient"), then these models are merged.

Paper: R. Zaccone, A. Rizzardi, D. Caldarola, M. Ciccone, B. Caputo. Speeding up Heterogeneous Federated
Learning with Sequentially Trained Superclients. ICPR 2022.

Rule: clients are grouped once. Each round samples G = max(1, ⌊C·N_S⌋) groups. A copy of the global model goes through
the clients of each sampled group, `loops` times, in a new random order each time, and back to the server.

Deviations: none in the route. Groups are random unless another grouping is set. With `order: fixed` and
`handover: server` it is the NaiveGSP of S. Zeng et al., FedGSP, DASFAA 2022: a model visits the clients of a group
always in the same order, and a manager passes it on.
"""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext, sample
from fedrelay.routes.group_routing import GroupRouting
from fedrelay.routes.plan import RoundPlan, Route


class Chains(GroupRouting):
    """One route for each sampled group, through its clients."""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        groups = sample(context, round, len(context.groups))
        routes = (Route(self.clients_in_order(context, round, group, context.groups[group])) for group in groups)
        return RoundPlan(round, tuple(routes), self.handover)
