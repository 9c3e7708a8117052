"""FedFusion: clients see with the anchor's extractor beside their own, and learn how to fuse the two.

Paper: X. Yao, T. Huang, C. Wu, R. Zhang, L. Sun. Towards Faster and Better Federated Learning: A Feature Fusion
Approach. ICIP 2019.

Rule: logits = C(F(E(x), E_a(x))), where E_a is a frozen copy of the anchor's extractor, taken at the beginning of a
turn. F is `conv`, a 1×1 convolution of both extractors' channels; `multi`, λ⊙E_a + (1−λ)⊙E with one λ for each channel;
or `single`, with one λ for all. E, F and C are merged as usual, and so is E_a, which after a round of single clients is
the very extractor they all trained against. Then the server smooths λ over rounds, λ ← (1−s)λ + s·λ_before.

Deviations: the extractor is all but the last linear layer, so features are vectors; the paper's is the convolutional
part. In chains the anchor is the model received from the predecessor. E_a is counted as sent along with the model,
although whoever received the anchor could keep it. Where models wait in slots, λ is smoothed when they are merged. A
warm-up before the method trains the same network, so clients fuse there too: otherwise E_a would stay a random
extractor.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import AnchoredTerm
from fedrelay.models.fusion import Operator, fused, refer_to, smoothed
from fedrelay.models.layout import FlatLayout, FlatModule


class Fusion(AnchoredTerm):
    """The model C(F(E, E_a))."""

    stackable: ClassVar[bool] = False
    in_warmup: ClassVar[bool] = True
    operator: Operator = Field("conv", description="how the two extractors' features are fused")
    smoothing: float = Field(0.9, ge=0, lt=1, description="multi, single: s, how much of the last λ stays at a merge")

    def adapt(self, module: nn.Module) -> nn.Module:
        """The model with a second extractor."""
        return fused(module, self.operator)

    def begin(self, bench: FlatModule, visit: HopContext) -> None:
        """Take the anchor's extractor for reference."""
        refer_to(self.anchor_of(visit), bench.flat, bench.layout)

    def temper(self, merged: Tensor, before: Tensor, layout: FlatLayout) -> Tensor:
        """Let λ change slowly."""
        return smoothed(merged, before, layout, self.smoothing)
