"""MOON: features are drawn to those of the anchor model and away from those of the client's own previous model.

Paper: Q. Li, B. He, D. Song. Model-Contrastive Federated Learning. CVPR 2021.

Rule: the loss gains μℓ with ℓ = −log[e^(s(z, z_a)/T) / (e^(s(z, z_a)/T) + e^(s(z, z_p)/T))], the mean over a batch. z,
z_a and z_p are the features of the model in training, of the anchor and of this client's model after its last turn; s
is their cosine. A client on its first turn has no previous model, so ℓ = 0.

Deviations: features are what the last linear layer sees; the paper adds a projection head of two layers. In chains the
anchor is the model received from the predecessor. Only the last model is kept, as in the paper's experiments. An
all-zero vector has the cosine 0 with all others.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from fedrelay.local.terms.base import AnchoredTerm, Batch, LossTerm
from fedrelay.local.visit import Parting, Visit


class Contrast(LossTerm, AnchoredTerm):
    """The loss μℓ."""

    state: ClassVar[tuple[str, ...]] = ("previous",)
    adds_up: ClassVar[bool] = False
    mu: float = Field(5.0, ge=0, description="strength of the contrast")
    temperature: float = Field(0.5, gt=0, description="how sharply similarities are told apart")

    @property
    def needs_features(self) -> bool:
        """It compares nothing else."""
        return True

    def loss(self, batch: Batch, visit: Visit) -> Tensor:
        """Contrast the anchor with the client's own last model."""
        previous = visit.state["previous"]
        if not previous.any():  # never here before
            return batch.outputs.logits.new_zeros(())
        own, anchor, before = (
            batch.counted(outputs.features)
            for outputs in (batch.outputs, batch.judged_by(self.anchor_of(visit)), batch.judged_by(previous))
        )
        return self.mu * contrast(own, anchor, before, self.temperature)

    def remember(self, visit: Visit, parting: Parting) -> None:
        """Keep the whole model, with what is not trained: it will be asked for its opinion."""
        parting.whole.kept["previous"].copy_(parting.model)


def contrast(own: Tensor, anchor: Tensor, before: Tensor, temperature: float) -> Tensor:
    """The mean of ℓ over rows of features: never negative, log 2 where anchor and previous model agree."""
    closer = F.cosine_similarity(own, before, dim=-1) - F.cosine_similarity(own, anchor, dim=-1)
    return F.softplus(closer / temperature).mean()
