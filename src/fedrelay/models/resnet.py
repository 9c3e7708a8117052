"""ResNet-18 (He et al., 2016) with GroupNorm instead of BatchNorm.

Running batch statistics cannot be averaged over clients with different data. GroupNorm keeps none, and has the same
number of trainable parameters.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown
from fedrelay.models.two_part_classifier import Shape, TwoPartClassifier

Stem = Literal["imagenet", "cifar"]
GROUPS = 2
LARGEST_CIFAR_STEM_SIDE = 64
"""The ImageNet stem shrinks an image fourfold, which leaves too little of images up to this size."""


class Residual(nn.Module):
    """A residual block: ReLU of the sum of a body and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Two 3×3 convolutions, the first with the stride; the shortcut adapts the shape if it changes."""
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, outputs, 3, stride), nn.ReLU(), *_convolution(outputs, outputs, 3)
        )
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential(*([] if same_shape else _convolution(inputs, outputs, 1, stride)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18(shape: Shape, classes: int, *, stem: Stem | None = None) -> TwoPartClassifier:
    """ResNet-18. The default `stem` is CIFAR's for images of up to 64×64 pixels, else ImageNet's."""
    if stem is None:
        stem = "cifar" if max(shape[1:]) <= LARGEST_CIFAR_STEM_SIDE else "imagenet"
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Residual(inputs, outputs, stride=1 if inputs == outputs else 2) for inputs, outputs in pairwise(widths)]
    features = nn.Sequential(*_stem(stem, shape[0]), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return TwoPartClassifier(features, nn.Linear(widths[-1], classes))


def _stem(stem: Stem, channels: int) -> list[nn.Module]:
    match stem:
        case "imagenet":
            pool = nn.MaxPool2d(3, stride=2, padding=1)
            return [*_convolution(channels, 64, 7, stride=2), nn.ReLU(), pool]
        case "cifar":
            return [*_convolution(channels, 64, 3), nn.ReLU()]
        case _:
            raise SpecError(unknown("stem", stem, get_args(Stem)))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return [convolution, nn.GroupNorm(GROUPS, outputs)]
