"""Elementwise activations, computed in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedrelay.models.batched.base import BoundLayer, LaneModels, ValuesAndGradient
from fedrelay.models.flat_layout import LayoutEntry


@dataclass(frozen=True)
class UnboundActivation:
    """ReLU or tanh."""

    kind: Literal["relu", "tanh"]

    @property
    def parameters(self) -> tuple[LayoutEntry, ...]:
        return ()

    def bind(self, models: LaneModels, outputs: ValuesAndGradient) -> tuple[BoundLayer, ValuesAndGradient]:
        """The inputs and the outputs share their memory."""
        return (BoundRelu(outputs) if self.kind == "relu" else BoundTanh(outputs)), outputs


@dataclass(frozen=True)
class BoundRelu(BoundLayer):
    """ReLU of all lanes; its derivative is the sign of its output."""

    outputs: ValuesAndGradient

    def forward(self) -> None:
        self.outputs.values.relu_()

    def compute_input_gradient(self) -> None:
        self.outputs.gradient.mul_(self.outputs.values.sign_())  # the next layer, their only reader, is done with them


@dataclass(frozen=True)
class BoundTanh(BoundLayer):
    """Tanh of all lanes; its derivative is one minus the square of its output."""

    outputs: ValuesAndGradient

    def forward(self) -> None:
        self.outputs.values.tanh_()

    def compute_input_gradient(self) -> None:
        self.outputs.gradient.mul_(1 - self.outputs.values.square())
