"""FedStar: every client has its own model and mixes it with those of all others; there is no server.

Paper: S. Jain, K. R. Jerripothula. Federated Learning for Commercial Image Sources. WACV 2023 (Fed-Star).

Rule: client i mixes its model with those of the other participating clients, θ_i ← (1 − β)θ_i + β·Σ_{j≠i} s_ij θ_j,
trains it on its own samples and sends it to all of them. The mean of all models is evaluated.

Deviations: the paper's weights s_ij for the others' models are not known. Here all are equal, or with `weights:
accuracy` s_ij = softmax_j(acc_i(θ_j)/T), where acc_i is the accuracy on the training samples of client i. m clients
exchange m(m − 1) models per round. Evaluating them takes no virtual time; the simulation does it for all clients.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import Mixing, RoundPlan, Route


class AllToAll(Routing):
    """One route for each participating client, with one hop, starting from its mixed model."""

    model_per_client: ClassVar[bool] = True

    beta: float = Field(0.5, ge=0, le=1, description="share of the other clients' models in the mix")
    weights: Literal["uniform", "accuracy"] = Field(
        "uniform", description="weight of each other model: uniform, or by its accuracy on the client's samples"
    )
    temperature: float = Field(
        1.0, gt=0, description="weights accuracy: T of softmax(accuracy / T); a small T favours the best model"
    )

    @model_validator(mode="after")
    def _temperature_needs_accuracy(self) -> Self:
        if self.weights == "uniform" and self.temperature != type(self).model_fields["temperature"].default:
            raise ValueError("temperature: has no effect with weights 'uniform'")
        return self

    @property
    def ever_merges(self) -> bool:
        return False

    @property
    def setting_that_needs_client_samples_at_server(self) -> str:
        return "route.weights: 'accuracy'" if self.weights == "accuracy" else ""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        clients = sorted(sample(context, round, context.client_count))
        routes = tuple(Route((client,), client) for client in clients)
        mixing = Mixing(self.beta, self.temperature if self.weights == "accuracy" else None)
        return RoundPlan(round, routes, "peers", merges=False, mixing=mixing)
