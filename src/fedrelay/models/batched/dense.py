"""Linear layers."""

from __future__ import annotations

from dataclasses import dataclass

from fedrelay.models.batched.base import Activations, Models, Shape, Step
from fedrelay.models.batched.linear import LinearMap


@dataclass(frozen=True)
class Dense(LinearMap):
    """A linear layer, on vectors or on images that it takes as vectors."""

    given: Shape

    def bind(self, models: Models, behind: Activations) -> tuple[Step, Activations]:
        """Images are read as they lie, with the samples innermost: a matrix product does not mind."""
        before = Activations.of(models, self.given)
        vectors = (
            before if len(self.given) == 1 else Activations(*(part.flatten(1, 3).transpose(1, 2) for part in before))
        )
        return self.between(models, vectors, behind), before
