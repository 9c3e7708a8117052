"""Federated daisy-chaining: every client's model goes on to a random other client, and all are averaged now and then.

Paper: M. Kamp, J. Fischer, J. Vreeken. Federated Learning from Small Datasets. ICLR 2023. The authors call it FedDC,
which is also the name of another method (`feddc`, by L. Gao et al.).

Rule: there are m = max(1, ⌊C·K⌋) models, each in a slot, and each trains at one client in every round. Every d rounds
(`every`) the models are dealt to clients anew, a random permutation. Every b rounds (`period`) they are merged, and all
slots go on with the merged model.

Deviations: with fraction 1, as in the paper, all clients have a model; otherwise models are dealt to a new sample of
clients. The paper's aggregation is a uniform mean (`merge.weights: uniform`, the default of this name). If d is larger
than 1, models stay where they are between two permutations; rounds and ledger count this as if each went to the server
and back. In rounds without a merge, the mean of the models is evaluated.
"""

from __future__ import annotations

from pydantic import Field

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class DaisyChain(Routing):
    """One route of one hop for each slot."""

    every: int = Field(1, ge=1, description="rounds after which models go on to other clients (d)")
    period: int = Field(10, ge=1, description="rounds between merges (b)")

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        clients = sample(context, (round - 1) // self.every + 1, context.client_count)
        continues = (round - 1) % self.period > 0
        routes = (Route((client,), slot, continues=continues) for slot, client in enumerate(clients))
        return RoundPlan(round, tuple(routes), "server", merges=round % self.period == 0)
