"""Dense models, for tabular data and small images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from fedrelay.models.two_part_classifier import Shape, TwoPartClassifier


def dense_layers(inputs: int, widths: Sequence[int]) -> list[nn.Module]:
    """A linear layer and a ReLU for every width."""
    sizes = pairwise((inputs, *widths))
    return [layer for size, width in sizes for layer in (nn.Linear(size, width), nn.ReLU())]


def logistic(shape: Shape, classes: int) -> TwoPartClassifier:
    """Multinomial logistic regression: the features are the raw sample."""
    return TwoPartClassifier(nn.Sequential(nn.Flatten()), nn.Linear(math.prod(shape), classes))


def mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...] = (64,)) -> TwoPartClassifier:
    """A multilayer perceptron with ReLU."""
    features = nn.Sequential(nn.Flatten(), *dense_layers(math.prod(shape), hidden))
    return TwoPartClassifier(features, nn.Linear(hidden[-1], classes))


def kdd_mlp(shape: Shape, classes: int) -> TwoPartClassifier:
    """The perceptron used with NSL-KDD, without its final softmax: the loss expects logits."""
    features = nn.Sequential(
        nn.Linear(math.prod(shape), 288),
        nn.Tanh(),
        nn.Dropout(0.1),
        nn.Linear(288, 120),
        nn.ReLU(),
        nn.Dropout(0.1),
    )
    return TwoPartClassifier(features, nn.Linear(120, classes))
