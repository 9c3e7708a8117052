"""MOON: features are drawn to those of the anchor model and away from those of the client's own previous model.

Paper: Q. Li, B. He, D. Song. Model-Contrastive Federated Learning. CVPR 2021.

Rule: the loss gains μℓ with ℓ = −log[e^(s(z, z_a)/T) / (e^(s(z, z_a)/T) + e^(s(z, z_p)/T))], the mean over a batch. z,
z_a and z_p are the features of the model in training, of the anchor and of this client's model after its last turn; s
is their cosine. A client on its first turn has no previous model, so ℓ = 0. Features are what the last linear layer
sees: the output of a projection head of two layers that the model gains below it, as in the authors' code. The head is
part of the model, so it travels and is merged like the rest; with `projection: 0` the model stays as it is.

Deviations: in chains the anchor is the model received from the predecessor. Only the last model is kept, as in the
paper's experiments. An all-zero vector has the cosine 0 with all others.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from fedrelay.local.hop_context import HopContext, HopOutcome
from fedrelay.local.terms.base import AnchoredTerm, Batch, LossTerm
from fedrelay.local.terms.tensors import ClientState, TermTensor
from fedrelay.models.projection import projected


class Contrast(LossTerm, AnchoredTerm):
    """The loss μℓ."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (ClientState("previous", adds_up=False),)
    mu: float = Field(5.0, ge=0, description="strength of the contrast")
    temperature: float = Field(0.5, gt=0, description="how sharply similarities are told apart")
    projection: int = Field(256, ge=0, description="outputs of the projection head; 0 = no head")

    @property
    def needs_features(self) -> bool:
        """It compares nothing else."""
        return True

    def adapt(self, module: nn.Module) -> nn.Module:
        """The model with its head."""
        module = super().adapt(module)
        return projected(module, self.projection) if self.projection else module

    def loss(self, batch: Batch, visit: HopContext) -> Tensor:
        """Contrast the anchor with the client's own last model."""
        previous = visit.state["previous"]
        if not previous.any():  # never here before
            return batch.outputs.logits.new_zeros(())
        own, anchor, before = (
            batch.counted(outputs.features)
            for outputs in (batch.outputs, batch.judged_by(self.anchor_of(visit)), batch.judged_by(previous))
        )
        return self.mu * contrast(own, anchor, before, self.temperature)

    def remember(self, visit: HopContext, parting: HopOutcome) -> None:
        """Keep the whole model, with what is not trained: it will be asked for its opinion."""
        parting.whole.kept["previous"].copy_(parting.model)


def contrast(own: Tensor, anchor: Tensor, before: Tensor, temperature: float) -> Tensor:
    """The mean of ℓ over rows of features: never negative, log 2 where anchor and previous model agree."""
    closer = F.cosine_similarity(own, before, dim=-1) - F.cosine_similarity(own, anchor, dim=-1)
    return F.softplus(closer / temperature).mean()
