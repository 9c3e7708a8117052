"""Convolutions as matrix products: the windows of all samples become the columns of one matrix for each lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedrelay.models.batched.base import Activations, Models, Step
from fedrelay.models.batched.linear import LinearMap, LinearStep

Image = tuple[int, int, int]
"""(channels, height, width)."""
Pair = tuple[int, int]
"""Something along the height and along the width."""


@dataclass(frozen=True)
class Convolution(LinearMap):
    """A convolution with zero padding."""

    given: Image
    kernel: Pair
    stride: Pair
    padding: Pair

    @property
    def made(self) -> Image:
        """The shape of the images behind it; a side below 1 means that the images before it are too small."""
        sides = zip(self.given[1:], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((side + 2 * pad - kernel) // stride + 1 for side, kernel, stride, pad in sides)
        return self.weight.shape[0], height, width

    @property
    def multiplications(self) -> int:
        """All weights at every position."""
        return self.weight.size * prod(self.made[1:])

    def bind(self, models: Models, behind: Activations) -> tuple[Step, Activations]:
        """Windows are a view of the padded images; only their columns take room."""
        before = Activations.of(models, self.given)
        padded, inner = self._padded(before.values)
        windows = self._windows(padded)
        columns = torch.empty_like(windows, memory_format=torch.contiguous_format)
        rows = columns.flatten(4).flatten(1, 3).transpose(1, 2)
        # When slopes are passed on, the values of the columns are needed no more.
        product = self.between(
            models, Activations(rows, rows), Activations(*(part.flatten(2).transpose(1, 2) for part in behind))
        )
        taps = tuple(self._taps(columns, before.slopes))
        return ConvolutionStep(before, inner, windows, columns, product, taps), before

    def _padded(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """Images with a frame of zeros, and their inner part, to which images are copied; None without a frame."""
        (high, wide), (lanes, channels, height, width, batch) = self.padding, values.shape
        if not high and not wide:
            return values, None
        padded = values.new_zeros(lanes, channels, height + 2 * high, width + 2 * wide, batch)
        return padded, padded[:, :, high : high + height, wide : wide + width]

    def _windows(self, padded: Tensor) -> Tensor:
        """What each weight meets, `[lanes, channels, *kernel, height, width, batch]`."""
        lane, channel, row, column, sample = padded.stride()
        (down, right), (_, height, width) = self.stride, self.made
        return padded.as_strided(
            (*padded.shape[:2], *self.kernel, height, width, padded.shape[-1]),
            (lane, channel, row, column, row * down, column * right, sample),
        )

    def _taps(self, columns: Tensor, slopes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each weight of the kernel: the slopes of what it met, and where in the images it met it."""
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                (outputs, inputs), (outputs_across, inputs_across) = self._met(0, i), self._met(1, j)
                tap = columns[:, :, i, j, outputs, outputs_across]
                if tap.numel():
                    yield tap, slopes[:, :, inputs, inputs_across]

    def _met(self, axis: int, offset: int) -> tuple[slice, slice]:
        """Which outputs meet the image, not its frame, with one weight along an axis; and where in the image."""
        stride, shift = self.stride[axis], offset - self.padding[axis]
        begin = max(0, -(shift // stride))
        end = max(begin, min(self.made[1 + axis], (self.given[1 + axis] - 1 - shift) // stride + 1))
        first = begin * stride + shift
        return slice(begin, end), slice(first, first + (end - begin) * stride, stride)


@dataclass(frozen=True)
class ConvolutionStep(Step):
    """The convolution of all lanes."""

    before: Activations
    inner: Tensor | None
    windows: Tensor
    columns: Tensor
    product: LinearStep
    taps: tuple[tuple[Tensor, Tensor], ...]

    def forward(self) -> None:
        """Weights times windows, plus bias."""
        if self.inner is not None:
            self.inner.copy_(self.before.values)
        self.columns.copy_(self.windows)
        self.product.forward()

    def fill_gradient(self) -> None:
        """Slopes times windows."""
        self.product.fill_gradient()

    def pass_on(self) -> None:
        """The slopes of all windows, each added where it came from."""
        self.product.pass_on()
        self.before.slopes.zero_()
        for slopes, place in self.taps:
            place.add_(slopes)
