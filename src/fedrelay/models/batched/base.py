"""What all layers of a stack have in common: where they meet, and how they are carried out.

Every tensor has the lanes as its first axis. Vectors are `[lanes, batch, features]`, as matrix products like them best;
images are `[lanes, channels, height, width, batch]`: with the samples innermost, the windows of an image are long runs
of memory however small the image is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, Self

from torch import Tensor

from fedrelay.models.layout import LayoutEntry

Shape = tuple[int, ...]
"""The shape of one sample: (features,) or (channels, height, width)."""


class Models(NamedTuple):
    """Models side by side and their gradients, both `[lanes, size]`, to be trained on batches of a width."""

    flat: Tensor
    gradient: Tensor
    width: int


class Activations(NamedTuple):
    """Where two layers meet: values come from the one before it, slopes of the loss from the one behind it."""

    values: Tensor
    slopes: Tensor

    @classmethod
    def of(cls, models: Models, shape: Shape) -> Activations:
        """Room for samples of a shape."""
        lanes, width = len(models.flat), models.width
        sizes = (lanes, width, *shape) if len(shape) == 1 else (lanes, *shape, width)
        return cls(models.flat.new_zeros(sizes), models.flat.new_zeros(sizes))


@dataclass(frozen=True)
class LaneTensors:
    """Something whose tensors all have the lanes as their first axis."""

    def narrowed(self, lanes: int) -> Self:
        """The same for the first lanes alone, in the same memory."""
        return replace(self, **{field.name: narrowed(getattr(self, field.name), lanes) for field in fields(self)})


@dataclass(frozen=True)
class Step(LaneTensors, ABC):
    """A layer of all lanes, bound to the memory it reads and writes at every batch."""

    @abstractmethod
    def forward(self) -> None:
        """Compute the values behind this layer."""

    def fill_gradient(self) -> None:
        """Compute the gradients of the layer's own parameters, if it has any."""

    @abstractmethod
    def pass_on(self) -> None:
        """Compute the slopes before this layer, after `fill_gradient`, whose memory may be used again."""


class Layer(Protocol):
    """A layer as it is read off a module."""

    @property
    def entries(self) -> tuple[LayoutEntry, ...]:
        """What it trains."""

    def bind(self, models: Models, behind: Activations) -> tuple[Step, Activations]:
        """The step for these models that ends at the place behind it, and the place before it."""


def narrowed(value: Any, lanes: int) -> Any:
    """The first lanes of a tensor, or of all tensors in a tuple; anything else as it is."""
    if isinstance(value, Tensor):
        return value[:lanes]
    if isinstance(value, LaneTensors):
        return value.narrowed(lanes)
    if isinstance(value, tuple):
        parts = [narrowed(part, lanes) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
