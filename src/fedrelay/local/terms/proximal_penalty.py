"""FedProx: a proximal term keeps local models close to their starting point.

Paper: T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith. Federated Optimization in Heterogeneous
Networks. MLSys 2020.

Rule: the loss gains (μ/2)‖θ − a‖², the gradient μ(θ − a). A hop starts at a, where this gradient is zero: if clients
take one step a hop, such as one epoch of a single batch, FedProx is exactly FedAvg, whatever μ is.

Deviations: in chains the anchor a is the model received from the predecessor, as FedSeq prescribes; the round's
global model is an option. The term enters the gradient before momentum (the authors' optimiser adds it after).
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import AnchoredTerm


class ProximalPenalty(AnchoredTerm):
    """The gradient μ(θ − a)."""

    mu: float = Field(0.01, ge=0, description="strength of the proximal term")

    @property
    def proximal_strength_for_merge(self) -> float:
        return self.mu

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: HopContext) -> None:
        gradient.add_(theta - self.anchor_model(context), alpha=self.mu)
