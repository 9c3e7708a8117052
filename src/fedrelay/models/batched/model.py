"""Batched models: the layers read from a module, and the same layers bound to memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor, nn

from fedrelay.models.batched.base import BoundLayer, LaneModels, LaneSliceable, UnboundLayer, ValuesAndGradient
from fedrelay.models.batched.convolution import UnboundConvolution
from fedrelay.models.batched.linear import UnboundLinearMap, as_vectors
from fedrelay.models.batched.read_layers import read_chain
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.nested_inputs import InputShapes, single_shape


@dataclass(frozen=True)
class BatchedModel:
    """The layers of a module that can be batched."""

    layers: tuple[UnboundLayer, ...]

    @classmethod
    def of(cls, module: nn.Module, layout: FlatLayout, shapes: InputShapes) -> BatchedModel | None:
        """Read a module's layers for samples of a shape; None if some layer, or several inputs, are not supported."""
        shape = single_shape(shapes)
        layers = read_chain(module, layout, shape) if shape is not None else None
        return cls(layers) if layers is not None else None

    @property
    def classes(self) -> int:
        return self.layers[-1].parameters[0].shape[0]

    @property
    def multiplications(self) -> int:
        """Multiplications of a forward pass for one sample."""
        return sum(self._layer_multiplications)

    @property
    def window_values(self) -> int:
        """Values in the windows of all convolutions, for one sample."""
        return sum(layer.window_values for layer in self.layers if isinstance(layer, UnboundConvolution))

    @property
    def training_flops(self) -> float:
        """Operations of training on one sample: three products per layer, but the first needs no input gradient."""
        return 2.0 * (3 * self.multiplications - self._layer_multiplications[0])

    @property
    def _layer_multiplications(self) -> list[int]:
        return [layer.multiplications for layer in self.layers if isinstance(layer, UnboundLinearMap)]

    def bind(self, flat: Tensor, gradient: Tensor, batch: int) -> BoundBatchedModel:
        """Allocate memory for the models in `flat`, `[lanes, size]`, and batches of `batch` samples.

        Gradients are written to `gradient`, `[lanes, size]`.
        """
        models = LaneModels(flat, gradient, batch)
        # With the samples innermost, operations over a few classes are faster.
        logits = ValuesAndGradient(*(flat.new_zeros(len(flat), self.classes, batch) for _ in range(2)))
        activations = ValuesAndGradient(*(part.transpose(1, 2) for part in logits))
        layers: list[BoundLayer] = []
        features = activations
        for layer in reversed(self.layers):
            bound, activations = layer.bind(models, activations)
            features = features if layers else as_vectors(activations)
            layers.insert(0, bound)
        return BoundBatchedModel(flat, gradient, tuple(layers), activations.values, features, logits)

    def binder(self, flat: Tensor, gradient: Tensor) -> Callable[[int], Callable[[int], BoundBatchedModel]]:
        """Width of batches → number of lanes → the first lanes bound to memory; the last few widths are kept."""

        @lru_cache(maxsize=4)
        def of_width(width: int) -> Callable[[int], BoundBatchedModel]:
            return lru_cache(maxsize=None)(self.bind(flat, gradient, width).first_lanes)

        return of_width


@dataclass(frozen=True)
class BoundBatchedModel(LaneSliceable):
    """Batched models with their memory, ready for training."""

    flat: Tensor
    gradient: Tensor
    layers: tuple[BoundLayer, ...]
    inputs: Tensor
    features: ValuesAndGradient
    """The inputs of the last layer, `[lanes, batch, features]`."""
    logits: ValuesAndGradient
    """`[lanes, classes, batch]`."""

    def load(self, x: Tensor, rows: Tensor) -> None:
        """Use rows of `x`, `[samples, values]`, as inputs: those of the first lane, then those of the second, …"""
        if self.inputs.dim() == 3:
            torch.index_select(x, 0, rows, out=self._input_rows)
        else:
            lanes, *shape, batch = self.inputs.shape
            images = x.index_select(0, rows).view(lanes, batch, *shape)
            self.inputs.copy_(images.movedim(1, -1))

    @cached_property
    def _input_rows(self) -> Tensor:
        """The inputs of all lanes one after another, `[lanes · batch, features]`, for vectors."""
        return self.inputs.flatten(0, 1)

    def compute_gradient(self, target_gradient: Tensor, sample_weights: Tensor) -> Tensor:
        """Compute all gradients of the cross-entropy on the loaded inputs.

        Args:
            target_gradient: `[lanes, classes, batch]`, minus the sample's weight at its class and 0 elsewhere.
            sample_weights: `[lanes, 1, batch]`, 1/b in a batch of b, 0 for padding.

        Returns:
            The logits, `[lanes, classes, batch]`.
        """
        self.forward()
        self.write_cross_entropy_gradient(target_gradient, sample_weights)
        self.backward()
        return self.logits.values

    def write_cross_entropy_gradient(self, target_gradient: Tensor, sample_weights: Tensor) -> None:
        """Write the gradient of the logits, with the arguments of `compute_gradient`."""
        probabilities = torch.softmax(self.logits.values, dim=1)
        torch.addcmul(target_gradient, probabilities, sample_weights, out=self.logits.gradient)

    def forward(self) -> None:
        """Compute the features and the logits of the loaded inputs."""
        for layer in self.layers:
            layer.forward()

    def backward_squared(self) -> None:
        """Compute the sum over samples of the squared gradient of each, from the gradients of the logits."""
        for layer in self.layers[:0:-1]:
            layer.compute_squared_gradient()
            layer.compute_input_gradient()
        self.layers[0].compute_squared_gradient()

    def backward(self, feature_gradient: Tensor | None = None) -> None:
        """Compute all gradients from that of the logits, and from what else the loss depends on the features by.

        The features are overwritten.
        """
        for layer in self.layers[:0:-1]:
            layer.compute_gradient()
            layer.compute_input_gradient()
            if feature_gradient is not None and layer is self.layers[-1]:
                self.features.gradient.add_(feature_gradient)
        self.layers[0].compute_gradient()
