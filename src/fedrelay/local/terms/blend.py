"""WFSL's regulator: a client hands on a mixture of its own model and the one it received.

Paper: M. Arafeh et al. WFSL: Warmup-based Federated Sequential Learning. IEEE, 2025. See `warmup.wfsl`.

Rule: after training, θ ← (1−α)θ + α·recv, except at the first turn of a route. When the warm-up is over, its last cycle
is folded into one model: w = m_1, then w ← (1−α)m_j + αw over the models in order.

Deviations: the paper gives no α; its authors' later code has 0.091 and 0.143, hence 0.1. What the regulator does to a
list of models is not defined in the paper, the fold is our reading. It and the plain sum of the models, whose mean that
code takes instead, come home as baggage (the trained part of the model). That code also switches the regulator off in
the last cycle (`plain`); α then only serves the fold.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext, HopOutcome
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensors import Payload, TermTensor


class Blend(Term):
    """The model (1−α)θ + α·recv."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (Payload("fold", sent=False), Payload("sum", sent=False))
    alpha: float = Field(0.1, ge=0, le=1, description="share of the received model in what is handed on")
    plain: bool = Field(False, description="hand on the trained model itself")

    def finish(self, theta: Tensor, visit: HopContext) -> None:
        """Go back towards the received model."""
        if not self.plain:
            theta.lerp_(visit.recv, self._share(visit, theta))

    def remember(self, visit: HopContext, parting: HopOutcome) -> None:
        """Take the model into the fold and the sum."""
        handed_on, (fold, total) = parting.handed_on, (visit.payload[name] for name in ("fold", "sum"))
        fold.copy_(torch.lerp(handed_on, fold, self._share(visit, handed_on)))
        total.add_(handed_on)

    def _share(self, visit: HopContext, model: Tensor) -> Tensor:
        """α, but 0 while nobody has added to the sum; for each model on its own where several lie side by side."""
        begun = visit.payload["sum"].any(-1, keepdim=True)
        return begun.to(model) * self.alpha  # in the model's own precision
