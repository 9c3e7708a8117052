"""MOON: features move towards those of the anchor model and away from those of the client's own previous model.

Paper: Q. Li, B. He, D. Song. Model-Contrastive Federated Learning. CVPR 2021.

Rule: the loss gains μℓ with ℓ = −log[e^(s(z, z_a)/T) / (e^(s(z, z_a)/T) + e^(s(z, z_p)/T))], the mean over a batch. z,
z_a and z_p are the features of the model in training, of the anchor and of this client's model after its last hop; s is
their cosine similarity. On its first hop a client has no previous model, so ℓ = 0. Features are the inputs of the last
linear layer: the output of a projection head of two layers that the model gains below it, as in the authors' code. The
head is part of the model, so it travels and is merged like the rest; with `projection: 0` the model is not changed.

Deviations: in chains the anchor is the model received from the predecessor. Only the last model is kept, as in the
paper's experiments. An all-zero vector has cosine similarity 0 with all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import AnchoredTerm, Batch, LossTerm, OutputGradient
from fedrelay.local.terms.tensor_declarations import ClientState, TermTensor
from fedrelay.models.projection_head import add_projection_head

MIN_LENGTH = 1e-8
"""Features that are shorter count as this long in a cosine similarity."""


class ContrastiveLoss(LossTerm, AnchoredTerm):
    """The loss μℓ."""

    batchable: ClassVar[bool] = True
    tensors: ClassVar[tuple[TermTensor, ...]] = (ClientState("previous", additive=False),)
    mu: float = Field(5.0, ge=0, description="strength of the contrast")
    temperature: float = Field(0.5, gt=0, description="temperature: lower values sharpen differences in similarity")
    projection: int = Field(256, ge=0, description="outputs of the projection head; 0 = no head")

    @property
    def needs_features(self) -> bool:
        return True

    def adapt_model(self, module: nn.Module) -> nn.Module:
        return add_projection_head(module, self.projection) if self.projection else module

    def loss(self, batch: Batch, context: HopContext) -> Tensor:
        previous = context.client_state["previous"]
        known = previous.any(-1)  # not at a client's first hop
        if not known.any():
            return batch.outputs.logits.new_zeros(known.shape)
        own, anchor, before = self._features(batch, context)
        return self.mu * known * batch.mean(contrastive_losses(own, anchor, before, self.temperature))

    def losses_and_gradient(self, batch: Batch, context: HopContext) -> tuple[Tensor, OutputGradient]:
        known = context.client_state["previous"].any(-1)
        if not known.any():
            return batch.outputs.logits.new_zeros(known.shape), OutputGradient()
        own, anchor, before = self._features(batch, context)
        length = own.norm(dim=-1, keepdim=True).clamp_(min=MIN_LENGTH)
        unit = own / length
        away = F.normalize(before, dim=-1, eps=MIN_LENGTH) - F.normalize(anchor, dim=-1, eps=MIN_LENGTH)
        difference = (unit * away).sum(-1, keepdim=True)  # of the cosine similarities
        exponent, strength = difference / self.temperature, self.mu * known
        slope = exponent.sigmoid() * (strength / self.temperature)[:, None, None] / length
        gradient = batch.gradient_of_mean(slope * (away - difference * unit))
        return strength * batch.mean(F.softplus(exponent.squeeze(-1))), OutputGradient(features=gradient)

    def _features(self, batch: Batch, context: HopContext) -> Iterator[Tensor]:
        """Those of the model in training, of the anchor, and of this client's model after its last hop."""
        others = (self.anchor_model(context), context.client_state["previous"])
        outputs = (batch.outputs, *(batch.outputs_of_model(model) for model in others))
        return (batch.rows(each.features) for each in outputs)

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        # The whole model, because its outputs will be needed.
        outcome.full_context.new_client_state["previous"].copy_(outcome.full_model)


def contrastive_losses(own: Tensor, anchor: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """ℓ for each row of features: never negative, log 2 where anchor and previous model agree."""
    away, near = (F.cosine_similarity(own, other, dim=-1, eps=MIN_LENGTH) for other in (previous, anchor))
    return F.softplus((away - near) / temperature)
