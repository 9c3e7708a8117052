"""A model with two feature extractors, its own and a frozen reference, whose features are fused."""

from __future__ import annotations

import copy
from typing import Literal, Self

import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.projection_head import ProjectionHead

Operator = Literal["conv", "multi", "single"]


class FusionNet(nn.Module):
    """`classifier(fusion(features(x), reference(x)))`.

    The reference is frozen and always in eval mode. Every client rewrites it, so it travels, is averaged and evaluated
    with the model.
    """

    def __init__(self, features: nn.Module, classifier: nn.Linear | ProjectionHead, operator: Operator) -> None:
        super().__init__()
        self.features = features
        self.reference = copy.deepcopy(features).requires_grad_(False).eval()
        width = classifier.in_features
        fusion = LinearFusion(width) if operator == "conv" else WeightedSumFusion(width if operator == "multi" else 1)
        self.fusion = fusion.to(next(classifier.parameters()))
        self.classifier = classifier  # last, because the last linear layer must be the one that makes logits

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            reference = self.reference(x)
        logits: Tensor = self.classifier(self.fusion(self.features(x), reference))
        return logits

    def rewritten_parameters(self) -> set[str]:
        """The reference of all that is trained; the reference of a frozen parameter never changes."""
        return {f"reference.{name}" for name, each in self.features.named_parameters() if each.requires_grad}

    def train(self, mode: bool = True) -> Self:
        """Set the mode of everything but the reference."""
        super().train(mode)
        self.reference.eval()
        return self


class LinearFusion(nn.Module):
    """Fuses the channels of both extractors with one linear map: on feature vectors that is a 1×1 convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width)

    def forward(self, own: Tensor, reference: Tensor) -> Tensor:
        fused: Tensor = self.mix(torch.cat([own, reference], dim=-1))
        return fused


class WeightedSumFusion(nn.Module):
    """λ·reference + (1 − λ)·own, with one λ for all channels or one per channel; 0 at first."""

    def __init__(self, shares: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(shares))

    def forward(self, own: Tensor, reference: Tensor) -> Tensor:
        return torch.lerp(own, reference, self.share)


def to_fusion_net(module: nn.Module, operator: Operator) -> FusionNet:
    """A fusion model around the `features` and the `classifier` of a model."""
    features, classifier = getattr(module, "features", None), getattr(module, "classifier", None)
    if not isinstance(features, nn.Module) or not isinstance(classifier, nn.Linear | ProjectionHead):
        raise SpecError("model: fusion needs a model in two parts, `features` and a linear `classifier`, as in the zoo")
    return FusionNet(features, classifier, operator)


def copy_features_to_reference(source: Tensor, target: Tensor, layout: FlatLayout) -> None:
    """Copy the extractor of one fusion model to the reference of another; both are flat tensors."""
    entries = {entry.name: entry for entry in layout.entries}
    for name, entry in entries.items():
        part, _, rest = name.partition(".")
        if part == "reference":
            entry.view(target).copy_(entries[f"features.{rest}"].view(source))


def smooth_lambda(merged: Tensor, before: Tensor, layout: FlatLayout, smoothing: float) -> Tensor:
    """A merged fusion model whose λ is mixed with the one before; unchanged if the model has no λ."""
    weights = merged.clone()
    for entry in layout.entries:
        if entry.name == "fusion.share":
            entry.view(weights).lerp_(entry.view(before), smoothing)
    return weights
