"""FedFusion: a client uses the anchor's feature extractor beside its own, and learns how to fuse the two.

Paper: X. Yao, T. Huang, C. Wu, R. Zhang, L. Sun. Towards Faster and Better Federated Learning: A Feature Fusion
Approach. ICIP 2019.

Rule: logits = C(F(E(x), E_a(x))), where E_a is a frozen copy of the anchor's extractor, taken at the start of a hop. F
is `conv`, a 1×1 convolution of both extractors' channels; `multi`, λ⊙E_a + (1−λ)⊙E with one λ per channel; or
`single`, with one λ for all. E, F and C are merged as usual, and so is E_a, which after a round of single clients is
the extractor that they all trained against. Then the server smooths λ over rounds, λ ← (1−s)λ + s·λ_before.

Deviations: the extractor is everything but the last linear layer, so features are vectors; the paper's is the
convolutional part. In chains the anchor is the model received from the predecessor. E_a is counted as sent with the
model, although a client that received the anchor could keep it. Where models wait in slots, λ is smoothed when they are
merged. A warm-up before the method trains the same network, so clients fuse there too: otherwise E_a would stay a
random extractor.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import AnchoredTerm
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.models.fusion_net import Operator, copy_features_to_reference, smooth_lambda, to_fusion_net


class FeatureFusion(AnchoredTerm):
    """The model C(F(E, E_a))."""

    batchable: ClassVar[bool] = False
    in_warmup: ClassVar[bool] = True
    operator: Operator = Field("conv", description="how the two extractors' features are fused")
    smoothing: float = Field(0.9, ge=0, lt=1, description="multi, single: s, share of the previous λ after a merge")

    def adapt_model(self, module: nn.Module) -> nn.Module:
        return to_fusion_net(module, self.operator)

    def adjust_received_model(self, model: FlatModule, context: HopContext) -> None:
        copy_features_to_reference(self.anchor_model(context), model.flat, model.layout)

    def adjust_merged_model(self, merged: Tensor, before: Tensor, layout: FlatLayout) -> Tensor:
        return smooth_lambda(merged, before, layout, self.smoothing)
