"""Several dense models side by side, trained as one: forward and backward by batched matrix products.

For small dense networks almost all time goes into starting operations, not into arithmetic. A stack of `lanes`
models on slices of one `[lanes, size]` tensor starts each operation once for all of them, and writing the
backward pass out (three lines a layer) saves the bookkeeping of automatic differentiation as well.

Models that are chains of Flatten, Linear, ReLU and Tanh can be stacked; `DenseStack.of` says whether one can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedrelay.models.layout import Entry, Layout
from fedrelay.models.net import Net

Activation = Literal["none", "relu", "tanh"]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class DenseLayer:
    """One linear map and what follows it."""

    weight: Entry
    bias: Entry | None
    activation: Activation


@dataclass(frozen=True)
class DenseStack:
    """The layers of a model that can be stacked."""

    layers: tuple[DenseLayer, ...]

    @classmethod
    def of(cls, module: nn.Module, layout: Layout) -> DenseStack | None:
        """Read a module's layers, or None if it has others than those that can be stacked."""
        entries = {entry.name: entry for entry in layout.entries}
        layers: list[DenseLayer] = []
        seen: set[nn.Module] = set()
        for name, part in _steps(module, ""):
            # A subclass may compute something else, a hook may change the result, a repeated layer shares its weights.
            if any(getattr(part, hooks) for hooks in _HOOKS):
                return None
            if type(part) is nn.Linear and part not in seen:
                weight = entries.get(f"{name}.weight".lstrip("."))
                bias = entries.get(f"{name}.bias".lstrip(".")) if part.bias is not None else None
                if weight is None or (part.bias is not None and bias is None):
                    return None
                layers.append(DenseLayer(weight, bias, "none"))
            elif type(part) in (nn.ReLU, nn.Tanh) and layers and layers[-1].activation == "none":
                activation: Activation = "relu" if type(part) is nn.ReLU else "tanh"
                layers[-1] = DenseLayer(layers[-1].weight, layers[-1].bias, activation)
            elif not (type(part) in (Net, nn.Sequential) or (_flattens(part) and not layers)):
                return None
            seen.add(part)
        trained = {layer.weight.name for layer in layers} | {layer.bias.name for layer in layers if layer.bias}
        stackable = layers and layers[-1].activation == "none" and trained == set(entries)
        all_trained = all(entry.part == "trained" for entry in layout.entries)
        return cls(tuple(layers)) if stackable and all_trained else None

    def bind(self, flat: Tensor, gradient: Tensor) -> BoundStack:
        """The layers of the models in `flat`, `[lanes, size]`, whose gradients go to `gradient` of the same shape."""
        return BoundStack([BoundLayer.of(layer, flat, gradient) for layer in self.layers])


@dataclass(frozen=True)
class BoundLayer:
    """The views of one layer into the flat tensors, made once and used at every step."""

    weight: Tensor
    bias: Tensor | None
    weight_slope: Tensor
    bias_slope: Tensor | None
    activation: Activation

    @classmethod
    def of(cls, layer: DenseLayer, flat: Tensor, gradient: Tensor) -> BoundLayer:
        """One layer of all lanes."""
        bias = layer.bias
        return cls(
            _stacked(layer.weight, flat),
            _stacked(bias, flat).unsqueeze(1) if bias else None,
            _stacked(layer.weight, gradient),
            _stacked(bias, gradient) if bias else None,
            layer.activation,
        )

    def forward(self, given: Tensor) -> Tensor:
        """Outputs of all lanes."""
        weight = self.weight.transpose(1, 2)
        z = torch.bmm(given, weight) if self.bias is None else torch.baddbmm(self.bias, given, weight)
        if self.activation == "relu":
            return z.relu_()
        return z.tanh_() if self.activation == "tanh" else z

    def backward(self, slope: Tensor, given: Tensor) -> None:
        """The gradients of this layer's parameters, from the slope behind its linear map."""
        torch.bmm(slope.transpose(1, 2), given, out=self.weight_slope)
        if self.bias_slope is not None:
            torch.sum(slope, dim=1, out=self.bias_slope)

    def before(self, slope: Tensor, output: Tensor) -> Tensor:
        """The slope before this layer's activation, from the slope behind it and the activation's output."""
        if self.activation == "relu":
            return slope.mul_(output.sign())
        return slope.mul_(1 - output.square()) if self.activation == "tanh" else slope


@dataclass(frozen=True)
class BoundStack:
    """Models side by side, ready to be trained."""

    layers: list[BoundLayer]

    def fill_gradient(self, x: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        """Compute all gradients of the cross-entropy and return the loss of every lane.

        `x` is `[lanes, batch, features]`, `targets` and `shares` are `[lanes, batch, 1]`. A share is how much a sample
        counts: 1/b in a batch of b, 0 for a place left empty.
        """
        outputs = [x]
        for layer in self.layers:
            outputs.append(layer.forward(outputs[-1]))
        log_probabilities = torch.log_softmax(outputs.pop(), dim=-1)
        losses = log_probabilities.gather(-1, targets).mul_(shares).sum((1, 2)).neg_()
        slope = log_probabilities.exp_().mul_(shares).scatter_add_(-1, targets, -shares)
        for number in range(len(self.layers) - 1, 0, -1):
            layer, given = self.layers[number], outputs[number]
            layer.backward(slope, given)
            slope = self.layers[number - 1].before(torch.bmm(slope, layer.weight), given)
        self.layers[0].backward(slope, x)
        return losses


def _steps(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Containers and the parts of their chains, in the order in which they are applied."""
    yield prefix, module
    if type(module) in (Net, nn.Sequential):
        for name, part in module._modules.items():  # not named_children, which leaves out what is repeated
            if part is not None:
                yield from _steps(part, f"{prefix}.{name}".lstrip("."))


def _flattens(part: nn.Module) -> bool:
    return type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1)


def _stacked(entry: Entry, flat: Tensor) -> Tensor:
    return flat[:, entry.offset : entry.offset + entry.size].view(-1, *entry.shape)
