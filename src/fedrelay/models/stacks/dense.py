"""Linear layers."""

from __future__ import annotations

from dataclasses import dataclass

from fedrelay.models.stacks.base import Models, Place, Shape, Step
from fedrelay.models.stacks.linear import LinearMap


@dataclass(frozen=True)
class Dense(LinearMap):
    """A linear layer, on vectors or on images that it takes as vectors."""

    given: Shape

    def bind(self, models: Models, behind: Place) -> tuple[Step, Place]:
        """Images are read as they lie, with the samples innermost: a matrix product does not mind."""
        before = Place.of(models, self.given)
        vectors = before if len(self.given) == 1 else Place(*(part.flatten(1, 3).transpose(1, 2) for part in before))
        return self.between(models, vectors, behind), before
