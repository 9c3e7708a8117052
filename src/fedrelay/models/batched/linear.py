"""Linear maps, the basis of dense layers and convolutions: forward and backward are batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from fedrelay.models.batched.base import BoundLayer, LaneModels, Shape, ValuesAndGradient
from fedrelay.models.flat_layout import LayoutEntry

FEW_ROWS = 16
"""Products with a left matrix of fewer rows are fast, however long these are."""


class BoundMatrixProduct(NamedTuple):
    """A batched matrix product, and where its result goes."""

    left: Tensor
    right: Tensor
    bias: Tensor | None
    """What is added to every row, or to every column of the transposed product."""

    out: Tensor
    """Contiguous: then one call serves all lanes."""

    copied_to: Tensor | None = None
    """Where the result is copied; None if `out` is already its place."""

    @classmethod
    def of(cls, left: Tensor, right: Tensor, out: Tensor, bias: Tensor | None = None) -> BoundMatrixProduct:
        """The product, transposed if its output is contiguous only then, or if it is faster.

        MKL takes up to six times as long if columns of the right matrix are contiguous instead of rows; the left one
        does not matter. If both are like that, the transposed product has a good right matrix. If one is, either order
        has a bad one.

        Args:
            left: `[lanes, rows, inner]`.
            right: `[lanes, inner, columns]`.
            out: `[lanes, rows, columns]`.
            bias: `[lanes, 1, columns]`.
        """
        faster = _columns_are_contiguous(left) and _columns_are_contiguous(right)
        if out.is_contiguous() and not faster:
            return cls(left, right, bias, out)
        place = out.transpose(1, 2)
        fits = place.is_contiguous()
        return cls(
            left=right.transpose(1, 2),
            right=left.transpose(1, 2),
            bias=None if bias is None else bias.transpose(1, 2),
            out=place if fits else place.new_empty(place.shape),
            copied_to=None if fits else place,
        )

    def compute(self) -> None:
        if self.bias is None:
            torch.bmm(self.left, self.right, out=self.out)
        else:
            torch.baddbmm(self.bias, self.left, self.right, out=self.out)
        if self.copied_to is not None:
            self.copied_to.copy_(self.out)


class WeightAndBias(NamedTuple):
    """Views of weights `[lanes, outputs, inputs]` and biases `[lanes, outputs, 1]` inside flat tensors."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class UnboundLinearMap:
    """The parameters of a linear map."""

    weight: LayoutEntry
    bias: LayoutEntry | None

    @property
    def parameters(self) -> tuple[LayoutEntry, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    @property
    def multiplications(self) -> int:
        """Multiplications per sample."""
        return self.weight.size

    def bind_map(self, models: LaneModels, inputs: ValuesAndGradient, outputs: ValuesAndGradient) -> BoundLinearMap:
        """The map of all lanes from `[lanes, rows, inputs]` to `[lanes, rows, outputs]`."""
        theta = self._matrices(models.flat)
        bias = None if theta.bias is None else theta.bias.transpose(1, 2)
        product = BoundMatrixProduct.of(inputs.values, theta.weight.transpose(1, 2), outputs.values, bias)
        backward = BoundMatrixProduct.of(outputs.gradient, theta.weight, inputs.gradient)
        output_gradient = outputs.gradient.transpose(1, 2)
        gradient, inputs_first = self._matrices(models.gradient), _inputs_go_first(output_gradient, inputs.values)
        return BoundLinearMap(product, backward, output_gradient, inputs.values, gradient, inputs_first)

    def _matrices(self, flat: Tensor) -> WeightAndBias:
        outputs, inputs = self.weight.shape[0], prod(self.weight.shape[1:])
        weight = _columns(self.weight, flat).view(-1, outputs, inputs)
        return WeightAndBias(weight, _columns(self.bias, flat).unsqueeze(2) if self.bias is not None else None)


@dataclass(frozen=True)
class UnboundDense(UnboundLinearMap):
    """A dense layer, on vectors or on flattened images."""

    input_shape: Shape

    def bind(self, models: LaneModels, outputs: ValuesAndGradient) -> tuple[BoundLayer, ValuesAndGradient]:
        """Images stay in their memory order, with the samples innermost; products are ordered for that."""
        inputs = ValuesAndGradient.allocate(models, self.input_shape)
        return self.bind_map(models, as_vectors(inputs), outputs), inputs


@dataclass(frozen=True)
class BoundLinearMap(BoundLayer):
    """A linear map of all lanes."""

    product: BoundMatrixProduct
    backward: BoundMatrixProduct
    output_gradient: Tensor
    """`[lanes, outputs, rows]`."""
    inputs: Tensor
    """`[lanes, rows, inputs]`."""
    gradient: WeightAndBias
    inputs_first: bool
    """Whether the transposed gradient of the weights is computed, because that is faster."""

    def forward(self) -> None:
        self.product.compute()

    def compute_gradient(self) -> None:
        # The gradients of a layer are not contiguous across lanes, so the product needs its own memory first.
        if self.inputs_first:
            product = torch.bmm(self.inputs.transpose(1, 2), self.output_gradient.transpose(1, 2)).transpose(1, 2)
        else:
            product = torch.bmm(self.output_gradient, self.inputs)
        self.gradient.weight.copy_(product)
        if self.gradient.bias is not None:
            torch.sum(self.output_gradient, dim=2, keepdim=True, out=self.gradient.bias)

    def compute_squared_gradient(self) -> None:
        # The gradient of one sample is an outer product, and so is its square.
        squares = self.output_gradient.square()
        self.gradient.weight.copy_(torch.bmm(squares, self.inputs.square()))
        if self.gradient.bias is not None:
            torch.sum(squares, dim=2, keepdim=True, out=self.gradient.bias)

    def compute_squared_gradient_of_rows(self, batch: int) -> None:
        """The same where each sample has many rows, and neighbouring rows belong to the samples of a batch in turn."""
        outputs = torch.unflatten(self.output_gradient, 2, (-1, batch)).permute(0, 3, 1, 2)
        inputs = torch.unflatten(self.inputs, 1, (-1, batch)).transpose(1, 2)
        self.gradient.weight.copy_((outputs @ inputs).square_().sum(1))
        if self.gradient.bias is not None:
            self.gradient.bias.copy_(outputs.sum(3).square_().sum(1).unsqueeze(2))

    def compute_input_gradient(self) -> None:
        self.backward.compute()


def as_vectors(inputs: ValuesAndGradient) -> ValuesAndGradient:
    """Vectors as they are, and flattened images, as `[lanes, batch, features]`: a view of the same memory."""
    return ValuesAndGradient(*(part if part.dim() == 3 else part.flatten(1, 3).transpose(1, 2) for part in inputs))


def _columns_are_contiguous(matrices: Tensor) -> bool:
    """Whether neighbours in a column are neighbours in memory, as in a transposed view."""
    return matrices.stride(1) == 1 and matrices.stride(2) != 1


def _inputs_go_first(output_gradient: Tensor, inputs: Tensor) -> bool:
    """Whether the gradient of weights is faster as its transpose, inputs times outputs.

    Convolutions have thousands of rows, contiguous in both, so either order has a bad right matrix. Measured for 6 to
    64 outputs and 9 to 288 inputs: the product is fast if its left matrix is one of few outputs or inputs, and else if
    the larger one is on the left; the wrong order takes up to four times as long. With few rows, as in dense layers,
    copying a transposed gradient to its place costs more than the better order saves.

    Args:
        output_gradient: `[lanes, outputs, rows]`.
        inputs: `[lanes, rows, inputs]`.
    """
    outputs, rows, count = *output_gradient.shape[1:], inputs.shape[2]
    if not _columns_are_contiguous(inputs) or output_gradient.stride(2) != 1 or rows <= max(outputs, count):
        return False
    return outputs >= FEW_ROWS and (count < FEW_ROWS or count > outputs)


def _columns(entry: LayoutEntry, flat: Tensor) -> Tensor:
    return flat[:, entry.offset : entry.offset + entry.size]
