"""Weights of classes in a loss: none, given by the user, or balanced by the class counts of all clients."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from fedrelay.errors import SpecError
from fedrelay.tasks.base import TargetInfo, Task, class_counts

ClassWeights = Literal["none", "balanced"] | tuple[Annotated[float, Field(ge=0)], ...]


class ClassWeightedTask(Task):
    """A task whose loss may weight classes."""

    class_weights: ClassWeights = "none"

    @property
    def needs_class_counts(self) -> bool:
        return self.class_weights == "balanced"

    def prepared(self, targets: TargetInfo) -> Self:
        self.check_targets(targets)
        if not self.needs_class_counts:
            return self
        return self.model_copy(update={"class_weights": balanced_weights(targets)})


def balanced_weights(targets: TargetInfo) -> tuple[float, ...]:
    """Weights with which all classes that have samples weigh the same, 1 on average; 0 for the other classes."""
    counts = class_counts(targets)
    weights = counts.sum() / np.maximum(np.count_nonzero(counts) * counts, 1)
    return tuple(np.where(counts > 0, weights, 0.0).tolist())


def check_class_weights(weights: ClassWeights, classes: int) -> None:
    """Raise a SpecError if weights are not one for each class, or all 0."""
    if not isinstance(weights, tuple):
        return
    if len(weights) != classes:
        raise SpecError(f"task.class_weights: needs a weight for each of {classes} classes, got {len(weights)}")
    if not any(weights):
        raise SpecError("task.class_weights: at least one weight must be above 0")
