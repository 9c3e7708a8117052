"""Linear maps, which both dense layers and convolutions are: forward and backward are batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from fedrelay.models.batched.base import Activations, Models, Step
from fedrelay.models.layout import LayoutEntry


class Product(NamedTuple):
    """A product of matrices of all lanes and where it goes."""

    left: Tensor
    right: Tensor
    out: Tensor

    @classmethod
    def of(cls, left: Tensor, right: Tensor, out: Tensor) -> Product:
        """Turned around if only that makes the output contiguous: then one call serves all lanes."""
        if out.is_contiguous():
            return cls(left, right, out)
        return cls(right.transpose(1, 2), left.transpose(1, 2), out.transpose(1, 2))

    def compute(self) -> None:
        """Multiply."""
        torch.bmm(self.left, self.right, out=self.out)


class Matrices(NamedTuple):
    """Weights `[lanes, outputs, inputs]` and biases `[lanes, outputs, 1]` inside flat tensors, without copying."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class LinearMap:
    """The parameters of a linear map."""

    weight: LayoutEntry
    bias: LayoutEntry | None

    @property
    def entries(self) -> tuple[LayoutEntry, ...]:
        """What it trains."""
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    @property
    def multiplications(self) -> int:
        """How many of them one sample takes: here as many as there are weights."""
        return self.weight.size

    def between(self, models: Models, before: Activations, behind: Activations) -> LinearStep:
        """The map of all lanes from `[lanes, rows, inputs]` to `[lanes, rows, outputs]`."""
        theta = self._inside(models.flat)
        onward = Product.of(before.values, theta.weight.transpose(1, 2), behind.values)
        turned = onward.out is not behind.values
        bias = theta.bias if theta.bias is None or turned else theta.bias.transpose(1, 2)
        backward = Product.of(behind.slopes, theta.weight, before.slopes)
        slopes = behind.slopes.transpose(1, 2)
        return LinearStep(onward, bias, backward, slopes, before.values, self._inside(models.gradient))

    def _inside(self, flat: Tensor) -> Matrices:
        outputs, inputs = self.weight.shape[0], prod(self.weight.shape[1:])
        weight = _values(self.weight, flat).view(-1, outputs, inputs)
        return Matrices(weight, _values(self.bias, flat).unsqueeze(2) if self.bias is not None else None)


@dataclass(frozen=True)
class LinearStep(Step):
    """A linear map of all lanes."""

    onward: Product
    bias: Tensor | None
    backward: Product
    slopes: Tensor
    """Behind the map, `[lanes, outputs, rows]`."""
    inputs: Tensor
    """`[lanes, rows, inputs]`."""
    gradient: Matrices

    def forward(self) -> None:
        """Inputs times weights, plus bias."""
        if self.bias is None:
            self.onward.compute()
        else:
            torch.baddbmm(self.bias, self.onward.left, self.onward.right, out=self.onward.out)

    def fill_gradient(self) -> None:
        """Slopes times inputs. Gradients of one layer do not adjoin, so the product has memory of its own first."""
        self.gradient.weight.copy_(torch.bmm(self.slopes, self.inputs))
        if self.gradient.bias is not None:
            torch.sum(self.slopes, dim=2, keepdim=True, out=self.gradient.bias)

    def pass_on(self) -> None:
        """Slopes times weights."""
        self.backward.compute()


def _values(entry: LayoutEntry, flat: Tensor) -> Tensor:
    return flat[:, entry.offset : entry.offset + entry.size]
