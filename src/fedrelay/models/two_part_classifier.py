"""The structure of every model in the zoo: layers that compute features, and a last, linear layer that classifies."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Kind = Literal["image", "tabular", "tokens", "signal", "volume"]
"""The kinds of samples that a model can be built for."""

Shape = tuple[int, ...]
"""The shape of one sample: (channels, height, width), (features,) or (length,)."""


class TwoPartClassifier(nn.Module):
    """A classifier in two parts, `classifier(features(x))`, so that a method can use either of them."""

    def __init__(self, features: nn.Module, classifier: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        self.features = features
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """The logits: `[batch, classes]`, or for predictions at every position `[batch, length, classes]`, and at every
        pixel `[batch, classes, height, width]`."""
        logits: Tensor = self.classifier(self.features(x))
        return logits
