"""FedStar: every client has a model of its own and learns from all others'; there is no server.

Paper: S. Jain, K. R. Jerripothula. Federated Learning for Commercial Image Sources. WACV 2023 (Fed-Star).

Rule: client i mixes its model with those of the other clients that take part, θ_i ← (1 − β)θ_i + β·mean_{j≠i} θ_j,
trains it on its own samples and sends it to all of them. The mean of all models is what is judged.

Deviations: the paper's weights for the others' models are not known; here all count the same. m clients exchange
m(m − 1) models a round.
"""

from __future__ import annotations

from pydantic import Field

from fedrelay.routes.base import Routing, Scene, sample
from fedrelay.routes.plan import RoundPlan, Route


class Star(Routing):
    """Every trip visits one client with its own, mixed model."""

    beta: float = Field(0.5, ge=0, le=1, description="how much the mean of the others counts")

    @property
    def merges(self) -> bool:
        """Never."""
        return False

    def plan(self, scene: Scene, round: int) -> RoundPlan:
        """One route for each client that takes part; models stay where they are."""
        clients = sorted(sample(scene, round, scene.clients))
        routes = tuple(Route((client,), client) for client in clients)
        return RoundPlan(round, routes, "peers", merges=False, mixing=self.beta)
