"""A model's features: the inputs of its last linear layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedrelay.errors import SpecError


class FeatureRecorder:
    """Records the inputs of a module's last linear layer as `features` on every forward pass."""

    def __init__(self, module: nn.Module) -> None:
        self.features: Tensor
        last_linear(module).register_forward_pre_hook(self._record)

    def _record(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.features = inputs[0]


def last_linear(module: nn.Module) -> nn.Linear:
    """The layer that turns features into logits."""
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linears:
        raise SpecError("model: has no linear layer, so it has no features; use a model whose last layer is linear")
    return linears[-1]
