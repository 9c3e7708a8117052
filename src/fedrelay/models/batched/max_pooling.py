"""Max-pooling in two steps: the maximum along the rows of each window, then along its columns.

Of equal values the first in reading order wins, as in PyTorch; images with a plain background have many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrelay.models.batched.base import BoundLayer, LaneModels, ValuesAndGradient
from fedrelay.models.batched.convolution import ImageShape, Pair
from fedrelay.models.flat_layout import LayoutEntry


@dataclass(frozen=True)
class UnboundMaxPooling:
    """The largest value of each window. Windows do not overlap; incomplete windows at the edges are dropped."""

    input_shape: ImageShape
    kernel: Pair

    @property
    def parameters(self) -> tuple[LayoutEntry, ...]:
        return ()

    @property
    def output_shape(self) -> ImageShape:
        channels, height, width = self.input_shape
        return channels, height // self.kernel[0], width // self.kernel[1]

    def bind(self, models: LaneModels, outputs: ValuesAndGradient) -> tuple[BoundLayer, ValuesAndGradient]:
        inputs = ValuesAndGradient.allocate(models, self.input_shape)
        windows = ValuesAndGradient(*(self._windows(part) for part in inputs))
        maxima = torch.empty_like(windows.values[..., 0, :])
        rows = ValuesAndGradient(maxima, maxima)  # gradients come when the values are no longer needed
        return BoundMaxPooling(BoundMaxAlongAxis.of(windows, 5, rows), BoundMaxAlongAxis.of(rows, 3, outputs)), inputs

    def _windows(self, images: Tensor) -> Tensor:
        """`[lanes, channels, height, kernel height, width, kernel width, batch]`, without copying."""
        (_, height, width), (high, wide) = self.output_shape, self.kernel
        whole = images[:, :, : height * high, : width * wide]
        return whole.view(*images.shape[:2], height, high, width, wide, images.shape[-1])


@dataclass(frozen=True)
class BoundMaxAlongAxis(BoundLayer):
    """The maximum along one axis. `stays` is stored as 1.0 or 0.0, because numbers multiply faster than booleans."""

    values: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    stays: tuple[Tensor, ...]
    """For each value after the first: whether the maximum before it is at least as large."""
    outputs: ValuesAndGradient

    @classmethod
    def of(cls, inputs: ValuesAndGradient, axis: int, outputs: ValuesAndGradient) -> BoundMaxAlongAxis:
        values, gradients = (part.unbind(axis) for part in inputs)
        return cls(values, gradients, tuple(torch.empty_like(outputs.values) for _ in values[1:]), outputs)

    def forward(self) -> None:
        maximum = self.values[0]
        for value, stays in zip(self.values[1:], self.stays, strict=True):
            torch.ge(maximum, value, out=stays)
            maximum = torch.maximum(maximum, value, out=self.outputs.values)

    def compute_input_gradient(self) -> None:
        """The gradient goes to the maximum alone, from the last comparison back to the first."""
        remaining, first = self.outputs.gradient, self.gradients[0]
        for gradient, stays in zip(reversed(self.gradients[1:]), reversed(self.stays), strict=True):
            torch.addcmul(remaining, remaining, stays, value=-1, out=gradient)
            remaining = torch.mul(remaining, stays, out=first)


@dataclass(frozen=True)
class BoundMaxPooling(BoundLayer):
    """The pooling of all lanes: along the rows first, which keeps the reading order."""

    along_rows: BoundMaxAlongAxis
    along_columns: BoundMaxAlongAxis

    def forward(self) -> None:
        self.along_rows.forward()
        self.along_columns.forward()

    def compute_input_gradient(self) -> None:
        self.along_columns.compute_input_gradient()
        self.along_rows.compute_input_gradient()
