"""EWC: weights that mattered to earlier clients are held in place more firmly than others.

Paper: J. Kirkpatrick et al. Overcoming catastrophic forgetting in neural networks. PNAS 2017; as a baseline for
sequential federated learning in the paper of WFSL.

Rule: the loss gains (λ/2) Σ_p F_p (θ_p − recv_p)², the gradient λ·F⊙(θ − recv). F is the diagonal of the Fisher
information, the mean over the previous client's samples of (∂ log p(y|x)/∂θ_p)² at the model it handed on, and travels
with that model. With memory γ the Fishers along the way add up, F ← γF + F_new.

Deviations: F is computed once after a turn, not after every epoch. It comes home with the model, several by their mean
by samples, and sets off with the next round's. The very first turn has F = 0, so nothing holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.local.arrival import Arrival
from fedrelay.local.hop_context import HopContext, HopOutcome, Labels
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensors import Payload, TermTensor


class FisherPenalty(Term):
    """The gradient λ·F⊙(θ − recv)."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (Payload("fisher", resumes=True),)
    reveals: ClassVar[bool] = True
    stackable: ClassVar[bool] = False
    strength: float = Field(0.1, ge=0, description="λ, how firmly weights are held")
    memory: float = Field(
        0.0, ge=0, le=1, description="γ, how much of earlier clients' Fisher stays: 0 = only the last one's, 1 = all"
    )
    labels: Labels = Field("data", description="take the labels of the samples, or draw them by the model")

    def add_to(self, gradient: Tensor, theta: Tensor, visit: HopContext) -> None:
        """Hold what mattered before."""
        gradient.addcmul_(visit.payload["fisher"], theta - visit.recv, value=self.strength)

    def remember(self, visit: HopContext, parting: HopOutcome) -> None:
        """Hand on what matters now."""
        visit.payload["fisher"].mul_(self.memory).add_(parting.fisher(self.labels))

    def settle(self, server: Mapping[str, Tensor], arrivals: Sequence[Arrival], clients: int) -> Mapping[str, Tensor]:
        """The mean by samples of what came home."""
        total = torch.zeros_like(arrivals[0].payload["fisher"], dtype=torch.float64)
        for arrival in arrivals:
            total.add_(arrival.payload["fisher"], alpha=arrival.samples)
        mean = total / max(1, sum(arrival.samples for arrival in arrivals))
        return {**server, "fisher": mean.to(arrivals[0].payload["fisher"].dtype)}
