"""FedSeq: models travel through groups of clients ("superclients"), then the groups are averaged.

Paper: R. Zaccone, A. Rizzardi, D. Caldarola, M. Ciccone, B. Caputo. Speeding up Heterogeneous Federated
Learning with Sequentially Trained Superclients. ICPR 2022.

Rule: clients are grouped once. Each round G = max(1, ⌊C·N_S⌋) groups are sampled; a copy of the global model
travels through each of them, `loops` times, in an order drawn afresh for every loop. The server takes the mean of
the groups' outputs weighted by their samples.

Deviations: none in the route. Groups are formed at random unless another grouping is named.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrelay.routes.base import Routing, Scene, sample
from fedrelay.routes.plan import RoundPlan, Route


class Chains(Routing):
    """Every trip visits the clients of one sampled group."""

    needs_groups: ClassVar[bool] = True
    loops: int = Field(1, ge=1, le=1000, description="how often a model goes through its group in a round (E_S)")

    def plan(self, scene: Scene, round: int) -> RoundPlan:
        """One route for each sampled group."""
        groups = sample(scene, round, len(scene.groups))
        return RoundPlan(round, tuple(Route(self._trip(scene, round, group)) for group in groups))

    def _trip(self, scene: Scene, round: int, group: int) -> tuple[int, ...]:
        members = scene.groups[group]
        orders = (scene.rng("order", round, group, loop).permutation(members) for loop in range(self.loops))
        return tuple(int(client) for order in orders for client in order)
