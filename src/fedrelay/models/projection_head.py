"""A projection head: two layers between a model's features and its last linear layer."""

from __future__ import annotations

import copy

from torch import nn

from fedrelay.models.feature_recorder import last_linear


class ProjectionHead(nn.Sequential):
    """Replaces a linear classifier: features → features → projection → logits.

    The projection is the input of the last linear layer. The head is part of the model, so it travels with it.
    """

    def __init__(self, classifier: nn.Linear, width: int) -> None:
        features: int = classifier.in_features
        super().__init__(
            nn.Linear(features, features),
            nn.ReLU(),
            nn.Linear(features, width),
            nn.Linear(width, classifier.out_features, bias=classifier.bias is not None),
        )
        self.in_features = features
        self.to(classifier.weight)


def add_projection_head(module: nn.Module, width: int) -> nn.Module:
    """A copy of a model whose last linear layer is replaced by a projection head with `width` outputs."""
    module = copy.deepcopy(module)
    classifier = last_linear(module)
    head = ProjectionHead(classifier, width)
    if classifier is module:
        return head
    name = next(name for name, part in module.named_modules() if part is classifier)
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, head)
    return module
