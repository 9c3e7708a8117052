"""EWC: a quadratic penalty on changes of the weights that mattered to earlier clients.

Paper: J. Kirkpatrick et al. Overcoming catastrophic forgetting in neural networks. PNAS 2017; as a baseline for
sequential federated learning in the paper of WFSL.

Rule: the loss gains (λ/2) Σ_p F_p (θ_p − recv_p)², the gradient λ·F⊙(θ − recv). F is the diagonal of the Fisher
information, the mean over the previous client's samples of (∂ log p(y|x)/∂θ_p)² at the model it sent, and travels with
that model. With memory γ the Fishers along the route add up, F ← γF + F_new.

Deviations: F is computed once after a hop, not after every epoch. It comes back with the model; the server takes the
mean weighted by samples and sends it with the next round's models. On the very first hop F = 0: there is no penalty.
Clients train with SGD that starts anew at every hop, like all methods; the authors' runs of EWC used one Adam for all
clients, which is `train.optimizer=adam`, `train.optimizer_state=payload`, `train.lr=0.01`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext, Labels, TrainedHop
from fedrelay.local.terms.base import TASKS_WITH_LOGITS, MergedRound, Term, TermResult, mean_of_payloads
from fedrelay.local.terms.tensor_declarations import Payload, TermTensor


class FisherPenalty(Term):
    """The gradient λ·F⊙(θ − recv)."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (Payload("fisher", resumes=True),)
    payload_reveals_data: ClassVar[bool] = True
    strength: float = Field(0.1, ge=0, description="λ, strength of the penalty")
    memory: float = Field(
        0.0, ge=0, le=1, description="γ, how much of earlier clients' Fisher remains: 0 = only the last one's, 1 = all"
    )
    labels: Labels = Field("data", description="use the labels of the samples, or draw them from the model")

    @property
    def supported_tasks(self) -> frozenset[str] | None:
        return TASKS_WITH_LOGITS if self.labels == "model" else None

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: HopContext) -> None:
        gradient.addcmul_(context.payload["fisher"], theta - context.received, value=self.strength)

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        context.payload["fisher"].mul_(self.memory).add_(outcome.fisher(self.labels))

    def after_merge(self, round: MergedRound) -> TermResult:
        return TermResult({"fisher": mean_of_payloads(round.arrivals, "fisher")})
