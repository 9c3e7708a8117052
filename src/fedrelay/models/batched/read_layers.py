"""Reads the layers of a module that is a chain of convolutions, poolings, activations and linear layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from torch import nn

from fedrelay.models.batched.activation import UnboundActivation
from fedrelay.models.batched.base import Shape, UnboundLayer
from fedrelay.models.batched.convolution import Pair, UnboundConvolution
from fedrelay.models.batched.linear import UnboundDense
from fedrelay.models.batched.max_pooling import UnboundMaxPooling
from fedrelay.models.flat_layout import FlatLayout, LayoutEntry
from fedrelay.models.projection_head import ProjectionHead
from fedrelay.models.two_part_classifier import TwoPartClassifier

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def read_chain(module: nn.Module, layout: FlatLayout, shape: Shape) -> tuple[UnboundLayer, ...] | None:
    """The layers of a module for samples of a shape, or None if it is not a chain of supported layers."""
    chain = _Chain({entry.name: entry for entry in layout.entries}, [], shape, shape)
    if not all(chain.add(name, part) for name, part in _parts(module, "")):
        return None
    parameters = [entry for layer in chain.layers for entry in layer.parameters]
    all_trained = all(entry.part == "trained" for entry in layout.entries)
    # Equal names mean that no parameter is left over, equal numbers that none is shared.
    complete = {entry.name for entry in parameters} == set(chain.entries) and len(parameters) == len(chain.entries)
    ends_in_logits = bool(chain.layers) and isinstance(chain.layers[-1], UnboundDense)
    return tuple(chain.layers) if complete and all_trained and ends_in_logits else None


@dataclass
class _Chain:
    """The layers read so far, the shape of their outputs, and its memory shape: flattened images stay images."""

    entries: dict[str, LayoutEntry]
    layers: list[UnboundLayer]
    shape: Shape
    memory_shape: Shape

    def add(self, name: str, part: nn.Module) -> bool:
        """Add one part of the module; returns whether it is supported."""
        # Hooks, a replaced `forward` or a subclass may change the result: only exact types are supported.
        if any(getattr(part, hooks) for hooks in _HOOKS) or "forward" in vars(part):
            return False
        if type(part) is nn.Linear:
            return self._linear(name, part)
        if type(part) is nn.Conv2d:
            return self._convolution(name, part)
        if type(part) is nn.MaxPool2d:
            return self._pooling(part)
        if type(part) in (nn.ReLU, nn.Tanh):
            return self._activation(part)
        if type(part) is nn.Flatten:
            return self._flatten(part)
        return type(part) in (nn.Sequential, ProjectionHead) or (
            type(part) is TwoPartClassifier and [*part._modules] == ["features", "classifier"]
        )

    def _linear(self, name: str, part: nn.Linear) -> bool:
        weight, bias = self._entries(name)
        if weight is None or (part.bias is not None and bias is None) or self.shape != (part.in_features,):
            return False
        self._append(UnboundDense(weight, bias, self.memory_shape), (part.out_features,))
        return True

    def _convolution(self, name: str, part: nn.Conv2d) -> bool:
        weight, bias = self._entries(name)
        plain = part.groups == 1 and part.dilation == (1, 1) and part.padding_mode == "zeros"
        if weight is None or (part.bias is not None and bias is None) or not plain or isinstance(part.padding, str):
            return False
        if len(self.shape) != 3 or self.shape[0] != part.in_channels:
            return False
        channels, height, width = self.shape
        kernel, stride, padding = _pair(part.kernel_size), _pair(part.stride), _pair(part.padding)
        layer = UnboundConvolution(weight, bias, (channels, height, width), kernel, stride, padding)
        self._append(layer, layer.output_shape)
        return min(layer.output_shape) >= 1

    def _pooling(self, part: nn.MaxPool2d) -> bool:
        kernel, stride = _pair(part.kernel_size), _pair(part.stride)
        plain = _pair(part.padding) == (0, 0) and _pair(part.dilation) == (1, 1)
        if not plain or part.ceil_mode or part.return_indices or stride != kernel or min(kernel) < 2:
            return False
        if len(self.shape) != 3 or not self.layers:
            return False
        channels, height, width = self.shape
        layer = UnboundMaxPooling((channels, height, width), kernel)
        # ReLU and max-pooling can be swapped: ReLU has fewer values to work on after the pooling.
        after_relu = self.layers[-1] == UnboundActivation("relu")
        self.layers[-1:] = [layer, self.layers[-1]] if after_relu else [self.layers[-1], layer]
        self.shape = self.memory_shape = layer.output_shape
        return min(layer.output_shape) >= 1

    def _activation(self, part: nn.Module) -> bool:
        # The gradient of an activation is computed from its outputs, so no second activation may overwrite them.
        if not self.layers or isinstance(self.layers[-1], UnboundActivation):
            return False
        self.layers.append(UnboundActivation("relu" if type(part) is nn.ReLU else "tanh"))
        return True

    def _flatten(self, part: nn.Flatten) -> bool:
        if (part.start_dim, part.end_dim) != (1, -1):
            return False
        self.shape = (prod(self.shape),)
        if not self.layers:
            self.memory_shape = self.shape
        return True

    def _entries(self, name: str) -> tuple[LayoutEntry | None, LayoutEntry | None]:
        weight, bias = (self.entries.get(f"{name}.{leaf}".lstrip(".")) for leaf in ("weight", "bias"))
        return weight, bias

    def _append(self, layer: UnboundLayer, output_shape: Shape) -> None:
        self.layers.append(layer)
        self.shape = self.memory_shape = output_shape


def _parts(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Containers and their parts, in the order in which they are applied."""
    yield prefix, module
    if type(module) in (TwoPartClassifier, nn.Sequential, ProjectionHead):
        for name, part in module._modules.items():  # named_children would leave out repeated parts
            if part is not None:
                yield from _parts(part, f"{prefix}.{name}".lstrip("."))


def _pair(size: int | tuple[int, ...]) -> Pair:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
