"""Functions of single values, computed in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrelay.models.batched.base import Activations, Models, Step
from fedrelay.models.layout import LayoutEntry


@dataclass(frozen=True)
class Activation:
    """ReLU or tanh."""

    kind: Literal["relu", "tanh"]

    @property
    def entries(self) -> tuple[LayoutEntry, ...]:
        """Nothing is trained."""
        return ()

    def bind(self, models: Models, behind: Activations) -> tuple[Step, Activations]:
        """The place before an activation is the one behind it."""
        return (ReluStep(behind) if self.kind == "relu" else TanhStep(behind)), behind


@dataclass(frozen=True)
class ReluStep(Step):
    """Negative values become zero, and so do their slopes."""

    place: Activations

    def forward(self) -> None:
        """In place."""
        self.place.values.relu_()

    def pass_on(self) -> None:
        """In place, from the values behind."""
        self.place.slopes.mul_(self.place.values.sign())


@dataclass(frozen=True)
class TanhStep(Step):
    """The hyperbolic tangent, whose slope is one minus its square."""

    place: Activations

    def forward(self) -> None:
        """In place."""
        self.place.values.tanh_()

    def pass_on(self) -> None:
        """In place, from the values behind."""
        self.place.slopes.mul_(1 - self.place.values.square())
