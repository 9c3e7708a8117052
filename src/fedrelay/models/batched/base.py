"""The interface of all layers of a batched model.

The first axis of every tensor is the lane. Vectors are `[lanes, batch, features]`, which suits matrix products. Images
are `[lanes, channels, height, width, batch]`: with the samples innermost, the windows of an image are long contiguous
runs of memory, however small the image is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor

from fedrelay.models.flat_layout import LayoutEntry

Shape = tuple[int, ...]
"""The shape of one sample: (features,) or (channels, height, width)."""


class LaneModels(NamedTuple):
    """The flat models and their gradients, both `[lanes, size]`, and the number of samples per batch."""

    flat: Tensor
    gradient: Tensor
    batch: int


class ValuesAndGradient(NamedTuple):
    """The values between two layers and the gradient of the loss with respect to them."""

    values: Tensor
    gradient: Tensor

    @classmethod
    def allocate(cls, models: LaneModels, shape: Shape) -> ValuesAndGradient:
        """Memory for samples of a shape."""
        lanes, batch = len(models.flat), models.batch
        sizes = (lanes, batch, *shape) if len(shape) == 1 else (lanes, *shape, batch)
        return cls(models.flat.new_zeros(sizes), models.flat.new_zeros(sizes))


@dataclass(frozen=True)
class LaneSliceable:
    """A dataclass of tensors whose first axis is the lane."""

    def first_lanes(self, lanes: int) -> Self:
        """The same for the first lanes only, in the same memory."""
        return replace(self, **{field.name: _first_lanes(getattr(self, field.name), lanes) for field in fields(self)})


@dataclass(frozen=True)
class BoundLayer(LaneSliceable, ABC):
    """A layer of all lanes, bound to the memory that it reads and writes at every batch."""

    @abstractmethod
    def forward(self) -> None:
        """Compute the output values."""

    def compute_gradient(self) -> None:
        """Compute the gradients of the layer's own parameters, if it has any."""

    def compute_squared_gradient(self) -> None:
        """Instead of these gradients, compute the sum over samples of the squared gradient of each sample."""

    @abstractmethod
    def compute_input_gradient(self) -> None:
        """Compute the gradient of the inputs. Called after `compute_gradient`, whose memory may be reused."""


class UnboundLayer(Protocol):
    """A layer read from a module, without memory."""

    @property
    def parameters(self) -> tuple[LayoutEntry, ...]:
        """The parameters that it trains."""

    def bind(self, models: LaneModels, outputs: ValuesAndGradient) -> tuple[BoundLayer, ValuesAndGradient]:
        """The layer bound to its outputs, and newly allocated inputs."""


def _first_lanes(value: Any, lanes: int) -> Any:
    """The first lanes of a tensor, or of all tensors in a tuple; anything else unchanged."""
    if isinstance(value, Tensor):
        return value[:lanes]
    if isinstance(value, LaneSliceable):
        return value.first_lanes(lanes)
    if isinstance(value, tuple):
        parts = [_first_lanes(part, lanes) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
