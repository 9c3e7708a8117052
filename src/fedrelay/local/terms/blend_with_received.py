"""WFSL's regulator: a client sends a mixture of the model it trained and the model it received.

Paper: M. Arafeh et al. WFSL: Warmup-based Federated Sequential Learning. IEEE, 2025. See `warmup.wfsl`.

Rule: after training, θ ← (1−α)θ + α·recv, except on the first hop of a route. At the end of the warm-up, the models of
its last cycle are folded into one: w = m_1, then w ← (1−α)m_j + αw over the models in order.

Deviations: the paper gives no α; its authors' later code uses 0.091 and 0.143, hence 0.1. The paper does not define
what the regulator does to a list of models; the fold is our reading. The fold and the plain sum of the models (that
code takes their mean instead) come back as payload, for the trained part of the model. That code also switches the
regulator off in the last cycle (`plain`); then only the fold uses α.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import Payload, TermTensor


class BlendWithReceived(Term):
    """The model (1−α)θ + α·recv."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (Payload("fold", sent=False), Payload("sum", sent=False))
    alpha: float = Field(0.1, ge=0, le=1, description="share of the received model in the model that is sent")
    plain: bool = Field(False, description="send the trained model itself")

    def adjust_trained_model(self, theta: Tensor, context: HopContext) -> None:
        if not self.plain:
            theta.lerp_(context.received, self._alpha(context, theta))

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        sent, fold, total = outcome.sent, context.payload["fold"], context.payload["sum"]
        fold.copy_(torch.lerp(sent, fold, self._alpha(context, sent)))
        total.add_(sent)

    def _alpha(self, context: HopContext, model: Tensor) -> Tensor:
        """α for each model, but 0 on the first hop of a route, while the sum is still zero."""
        after_first_hop = context.payload["sum"].any(-1, keepdim=True)
        return after_first_hop.to(model) * self.alpha  # in the model's own precision
