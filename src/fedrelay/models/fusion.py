"""A model that sees with two extractors, its own and a frozen one of reference, and fuses what they find."""

from __future__ import annotations

import copy
from typing import Literal, Self

import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.models.layout import FlatLayout
from fedrelay.models.projection import ProjectionHead

Operator = Literal["conv", "multi", "single"]


class FusionNet(nn.Module):
    """`classifier(fusion(features(x), reference(x)))`.

    The reference is frozen and always in evaluation mode. It is part of the model, so it travels with it, is averaged
    with it and judged with it.
    """

    def __init__(self, features: nn.Module, classifier: nn.Linear | ProjectionHead, operator: Operator) -> None:
        super().__init__()
        self.features = features
        self.reference = copy.deepcopy(features).requires_grad_(False).eval()
        width = classifier.in_features
        fusion = Join(width) if operator == "conv" else Mix(width if operator == "multi" else 1)
        self.fusion = fusion.to(next(classifier.parameters()))
        self.classifier = classifier  # the last of all: the last linear layer is the one that makes logits

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        with torch.no_grad():
            found = self.reference(x)
        logits: Tensor = self.classifier(self.fusion(self.features(x), found))
        return logits

    def train(self, mode: bool = True) -> Self:
        """All but the reference."""
        super().train(mode)
        self.reference.eval()
        return self


class Join(nn.Module):
    """Both extractors' channels through one linear map: on feature vectors that is the 1×1 convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width)

    def forward(self, own: Tensor, found: Tensor) -> Tensor:
        """As many channels as each has."""
        fused: Tensor = self.mix(torch.cat([own, found], dim=-1))
        return fused


class Mix(nn.Module):
    """λ times the reference plus 1 − λ times our own, with one λ for all channels or one for each; 0 at first."""

    def __init__(self, shares: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(shares))

    def forward(self, own: Tensor, found: Tensor) -> Tensor:
        """As many channels as each has."""
        return torch.lerp(own, found, self.share)


def fused(module: nn.Module, operator: Operator) -> FusionNet:
    """A model in two parts as a fusion model, around the very same parts."""
    features, classifier = getattr(module, "features", None), getattr(module, "classifier", None)
    if not isinstance(features, nn.Module) or not isinstance(classifier, nn.Linear | ProjectionHead):
        raise SpecError("model: fusion needs a model in two parts, `features` and a linear `classifier`, as in the zoo")
    return FusionNet(features, classifier, operator)


def refer_to(anchor: Tensor, flat: Tensor, layout: FlatLayout) -> None:
    """Make the extractor of one fusion model the reference of another, both given as flat tensors."""
    places = {entry.name: entry for entry in layout.entries}
    for name, entry in places.items():
        part, _, rest = name.partition(".")
        if part == "reference":
            entry.view(flat).copy_(places[f"features.{rest}"].view(anchor))


def smoothed(merged: Tensor, before: Tensor, layout: FlatLayout, memory: float) -> Tensor:
    """A merged fusion model whose λ keeps a part of what it was before; without a λ it stays as it is."""
    weights = merged.clone()
    for entry in layout.entries:
        if entry.name == "fusion.share":
            entry.view(weights).lerp_(entry.view(before), memory)
    return weights
