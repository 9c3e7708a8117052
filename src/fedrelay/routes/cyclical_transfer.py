"""Cyclical weight transfer: one model goes from institution to institution, always in the same order.

Paper: K. Chang, N. Balachandar, C. Lam, D. Yi, J. Brown, A. Beers, B. Rosen, D. L. Rubin, J. Kalpathy-Cramer.
Distributed deep learning networks among institutions for medical imaging. Journal of the American Medical Informatics
Association 25, 2018.

Rule: the clients form a cycle, in the order of their numbers. One model is trained by each of them and handed to the
next, again and again. A round is the next m = max(1, ⌊C·K⌋) clients of the cycle: it goes on where the last round
ended, and with fraction 1 it is one whole cycle. There is nothing to average.

Deviations: the paper's server takes no part; here the model goes to the server and back after each round, so that it is
evaluated and costs two transfers more. `order: random` draws the order once; the other orders are ours
(`client_order.py`). It is FedCyclic with a fixed order if all clients take part; with a fraction, FedCyclic samples
clients, while the cycle leaves nobody out.
"""

from __future__ import annotations

from pydantic import Field

from fedrelay.routes.base import PlanningContext, sampled_count
from fedrelay.routes.client_order import ClientOrder
from fedrelay.routes.ordered_routing import OrderedRouting
from fedrelay.routes.plan import RoundPlan, Route


class CyclicalTransfer(OrderedRouting):
    """One route through the next clients of the cycle."""

    order: ClientOrder = Field(
        "fixed",
        description="order of the cycle: fixed (by client number), random (drawn once), size (largest last), given, "
        "complement (of the classes before), best-last or worst-last (most or least like all clients)",
    )

    @property
    def same_clients_last(self) -> bool:
        return True

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        count = context.client_count
        hops = sampled_count(count, context.fraction)
        cycle = self.in_order(context, range(count), context.rng("cycle"))
        places = range((round - 1) * hops, round * hops)
        return RoundPlan(round, (Route(tuple(cycle[place % count] for place in places)),), self.handover)
