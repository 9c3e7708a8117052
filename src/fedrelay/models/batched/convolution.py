"""Convolutions as matrix products: the windows of all samples become the columns of one matrix per lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedrelay.models.batched.base import BoundLayer, LaneModels, ValuesAndGradient
from fedrelay.models.batched.linear import BoundLinearMap, UnboundLinearMap

ImageShape = tuple[int, int, int]
"""(channels, height, width)."""
Pair = tuple[int, int]
"""A value for the height and one for the width."""


@dataclass(frozen=True)
class UnboundConvolution(UnboundLinearMap):
    """A convolution with zero padding."""

    input_shape: ImageShape
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def output_shape(self) -> ImageShape:
        """A side below 1 means that the input images are too small."""
        sides = zip(self.input_shape[1:], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((side + 2 * pad - kernel) // stride + 1 for side, kernel, stride, pad in sides)
        return self.weight.shape[0], height, width

    @property
    def multiplications(self) -> int:
        """All weights at every position."""
        return self.weight.size * prod(self.output_shape[1:])

    @property
    def window_values(self) -> int:
        """The values in all windows of one sample."""
        return prod((self.input_shape[0], *self.kernel, *self.output_shape[1:]))

    def bind(self, models: LaneModels, outputs: ValuesAndGradient) -> tuple[BoundLayer, ValuesAndGradient]:
        """Windows are a view of the padded images; only the columns are copied."""
        inputs = ValuesAndGradient.allocate(models, self.input_shape)
        padded, interior = self._pad(inputs.values)
        windows = self._windows(padded)
        columns = torch.empty_like(windows, memory_format=torch.contiguous_format)
        rows = columns.flatten(4).flatten(1, 3).transpose(1, 2)
        # When the gradient of the columns is computed, their values are no longer needed.
        product = self.bind_map(
            models,
            ValuesAndGradient(rows, rows),
            ValuesAndGradient(*(part.flatten(2).transpose(1, 2) for part in outputs)),
        )
        contributions = tuple(self._contributions(columns, inputs.gradient))
        return BoundConvolution(inputs, interior, windows, columns, product, contributions), inputs

    def _pad(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """Zero-padded images, and their interior, to which images are copied; None without padding."""
        (high, wide), (lanes, channels, height, width, batch) = self.padding, values.shape
        if not high and not wide:
            return values, None
        padded = values.new_zeros(lanes, channels, height + 2 * high, width + 2 * wide, batch)
        return padded, padded[:, :, high : high + height, wide : wide + width]

    def _windows(self, padded: Tensor) -> Tensor:
        """A view of all windows, `[lanes, channels, *kernel, height, width, batch]`."""
        lane, channel, row, column, sample = padded.stride()
        (down, right), (_, height, width) = self.stride, self.output_shape
        return padded.as_strided(
            (*padded.shape[:2], *self.kernel, height, width, padded.shape[-1]),
            (lane, channel, row, column, row * down, column * right, sample),
        )

    def _contributions(self, columns: Tensor, input_gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each position of the kernel: its part of the columns' gradient, and the inputs it is added to."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                (out_rows, in_rows), (out_columns, in_columns) = self._overlap(0, i), self._overlap(1, j)
                part = columns[:, :, i, j, out_rows, out_columns]
                if part.numel():
                    yield part, input_gradient[:, :, in_rows, in_columns]

    def _overlap(self, axis: int, offset: int) -> tuple[slice, slice]:
        """Which outputs use an input pixel (not padding) at a kernel position along an axis, and which pixels."""
        stride, shift = self.stride[axis], offset - self.padding[axis]
        begin = max(0, -(shift // stride))
        end = max(begin, min(self.output_shape[1 + axis], (self.input_shape[1 + axis] - 1 - shift) // stride + 1))
        first = begin * stride + shift
        return slice(begin, end), slice(first, first + (end - begin) * stride, stride)


@dataclass(frozen=True)
class BoundConvolution(BoundLayer):
    """A convolution of all lanes."""

    inputs: ValuesAndGradient
    interior: Tensor | None
    windows: Tensor
    columns: Tensor
    product: BoundLinearMap
    contributions: tuple[tuple[Tensor, Tensor], ...]

    def forward(self) -> None:
        if self.interior is not None:
            self.interior.copy_(self.inputs.values)
        self.columns.copy_(self.windows)
        self.product.forward()

    def compute_gradient(self) -> None:
        self.product.compute_gradient()

    def compute_squared_gradient(self) -> None:
        self.product.compute_squared_gradient_of_rows(self.inputs.values.shape[-1])

    def compute_input_gradient(self) -> None:
        self.product.compute_input_gradient()
        self.inputs.gradient.zero_()
        for part, pixels in self.contributions:
            pixels.add_(part)
