"""Max-pooling as a tournament: columns of each window against each other, then the winners of its rows.

Of equal values the first in reading order wins, as in PyTorch; images with a plain background have many.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedrelay.models.batched.base import Activations, Models, Step
from fedrelay.models.batched.convolution import Image, Pair
from fedrelay.models.layout import LayoutEntry


@dataclass(frozen=True)
class Pooling:
    """The largest value of each window; windows do not overlap, what is left over at the edges is dropped."""

    given: Image
    kernel: Pair

    @property
    def entries(self) -> tuple[LayoutEntry, ...]:
        """Nothing is trained."""
        return ()

    @property
    def made(self) -> Image:
        """The shape of the images behind it."""
        channels, height, width = self.given
        return channels, height // self.kernel[0], width // self.kernel[1]

    def bind(self, models: Models, behind: Activations) -> tuple[Step, Activations]:
        """Two tournaments."""
        before = Activations.of(models, self.given)
        values, slopes = (self._windows(part) for part in before)
        winners = torch.empty_like(values[..., 0, :])
        rows = Activations(winners, winners)  # slopes come back when the values are needed no more
        across = Tournament.of(Activations(values, slopes), 5, rows)
        return PoolingStep(across, Tournament.of(rows, 3, behind)), before

    def _windows(self, images: Tensor) -> Tensor:
        """`[lanes, channels, height, kernel height, width, kernel width, batch]`, without copying."""
        (_, height, width), (high, wide) = self.made, self.kernel
        whole = images[:, :, : height * high, : width * wide]
        return whole.view(*images.shape[:2], height, high, width, wide, images.shape[-1])


@dataclass(frozen=True)
class Tournament(Step):
    """The largest values along one axis. Verdicts are numbers, 1 or 0, because these multiply faster than truths."""

    values: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    verdicts: tuple[Tensor, ...]
    behind: Activations

    @classmethod
    def of(cls, before: Activations, axis: int, behind: Activations) -> Tournament:
        """Values along an axis of the place before, the winners to the place behind."""
        values, slopes = (part.unbind(axis) for part in before)
        return cls(values, slopes, tuple(torch.empty_like(behind.values) for _ in values[1:]), behind)

    def forward(self) -> None:
        """Whoever comes later must be larger to win."""
        best = self.values[0]
        for value, verdict in zip(self.values[1:], self.verdicts, strict=True):
            torch.ge(best, value, out=verdict)
            best = torch.maximum(best, value, out=self.behind.values)

    def pass_on(self) -> None:
        """The slope goes to the winner alone, from the last match back to the first."""
        slopes, first = self.behind.slopes, self.slopes[0]
        for slope, verdict in zip(reversed(self.slopes[1:]), reversed(self.verdicts), strict=True):
            torch.addcmul(slopes, slopes, verdict, value=-1, out=slope)
            slopes = torch.mul(slopes, verdict, out=first)


@dataclass(frozen=True)
class PoolingStep(Step):
    """The pooling of all lanes: across the rows first, which keeps the reading order."""

    across: Tournament
    down: Tournament

    def forward(self) -> None:
        """Rows, then windows."""
        self.across.forward()
        self.down.forward()

    def pass_on(self) -> None:
        """Windows, then rows."""
        self.down.pass_on()
        self.across.pass_on()
