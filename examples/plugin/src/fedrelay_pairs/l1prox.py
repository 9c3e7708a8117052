"""L1 proximal term: most parameters stay where they were when the model arrived.

Rule: the loss gains strength · ‖θ − received‖₁, whose gradient is strength · sign(θ − received).
"""

from pydantic import Field
from torch import Tensor

import fedrelay as fr


class L1Prox(fr.Term):
    """The gradient strength · sign(θ − received)."""

    strength: float = Field(0.001, ge=0, description="weight of the L1 distance to the received model")

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: fr.HopContext) -> None:
        gradient.add_((theta - context.received).sign(), alpha=self.strength)


fr.register("l1prox", summary="an L1 penalty keeps most parameters in place", terms={"l1prox": L1Prox})
