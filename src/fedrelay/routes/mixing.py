"""Mixing: each route starts with its own model mixed with those of the other routes (FedStar)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fedrelay.routes.plan import Mixing

AccuracyAt = Callable[[Tensor, int], float]
"""The accuracy of a model on the samples of a client."""


def mix_models(
    models: Mapping[int, Tensor], mixing: Mixing, owners: Mapping[int, int], accuracy_at: AccuracyAt
) -> dict[int, Tensor]:
    """Mix the model of each route with the others.

    Args:
        models: Route number → its model.
        mixing: The share of the others, and how they are weighted.
        owners: Route number → the client that owns the model.
        accuracy_at: Evaluates a model on the samples of a client.
    """
    if len(models) < 2:
        return dict(models)
    if mixing.temperature is None:
        return with_mean_of_others(models, mixing.share)
    return {
        number: with_others(
            models,
            number,
            mixing.share,
            accuracy_weights(models, number, owners[number], mixing.temperature, accuracy_at),
        )
        for number in models
    }


def with_mean_of_others(models: Mapping[int, Tensor], share: float) -> dict[int, Tensor]:
    """Mix with the plain mean of the others; one sum serves all routes."""
    total = sum(models.values(), torch.zeros_like(next(iter(models.values())), dtype=torch.float64))
    others = len(models) - 1
    return {
        number: ((1 - share) * model + share * (total - model) / others).to(model.dtype)
        for number, model in models.items()
    }


def with_others(models: Mapping[int, Tensor], number: int, share: float, weights: Mapping[int, float]) -> Tensor:
    """(1 − share) of one model plus `share` of the weighted mean of the others."""
    own = models[number]
    blend = (1 - share) * own.double()
    for other, weight in weights.items():
        blend.add_(models[other], alpha=share * weight)
    return blend.to(own.dtype)


def accuracy_weights(
    models: Mapping[int, Tensor], number: int, owner: int, temperature: float, accuracy_at: AccuracyAt
) -> dict[int, float]:
    """The weight of each other model for one client: softmax(accuracy / temperature) on the client's samples."""
    others = [other for other in models if other != number]
    accuracies = torch.tensor([accuracy_at(models[other], owner) for other in others], dtype=torch.float64)
    return dict(zip(others, (accuracies / temperature).softmax(0).tolist(), strict=True))
