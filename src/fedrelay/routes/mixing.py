"""How models are mixed with those of other routes before the first hop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedrelay.routes.plan import Mixing

AccuracyAt = Callable[[Tensor, int], float]
"""The accuracy of a model on the samples of a client."""


def mixed(
    models: Mapping[int, Tensor], mixing: Mixing, homes: Mapping[int, int], accuracy_at: AccuracyAt
) -> dict[int, Tensor]:
    """Every route's model with its share of the others'; `homes` are the clients whose models these are."""
    if len(models) < 2:
        return dict(models)
    if mixing.temperature is None:
        return with_mean_of_others(models, mixing.share)
    return {
        number: with_others(
            models, number, mixing.share, preferences(models, number, homes[number], mixing.temperature, accuracy_at)
        )
        for number in models
    }


def with_mean_of_others(models: Mapping[int, Tensor], share: float) -> dict[int, Tensor]:
    """All others count the same, so one sum serves all."""
    total = sum(models.values(), torch.zeros_like(next(iter(models.values())), dtype=torch.float64))
    others = len(models) - 1
    return {
        number: ((1 - share) * model + share * (total - model) / others).to(model.dtype)
        for number, model in models.items()
    }


def with_others(models: Mapping[int, Tensor], number: int, share: float, weights: Mapping[int, float]) -> Tensor:
    """(1 − share) of one model, and `share` of the others' mean by these weights."""
    own = models[number]
    blend = (1 - share) * own.double()
    for other, weight in weights.items():
        blend.add_(models[other], alpha=share * weight)
    return blend.to(own.dtype)


def preferences(
    models: Mapping[int, Tensor], number: int, home: int, temperature: float, accuracy_at: AccuracyAt
) -> dict[int, float]:
    """How much each of the others counts for one client: the softmax of accuracy / temperature on its samples."""
    others = [other for other in models if other != number]
    accuracies = torch.tensor([accuracy_at(models[other], home) for other in others], dtype=torch.float64)
    return dict(zip(others, (accuracies / temperature).softmax(0).tolist(), strict=True))
