"""What a module's last linear layer sees: the features of its inputs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from fedrelay.errors import SpecError


class FeatureTap:
    """Looks into a module: after every forward pass, `features` is what went into its last linear layer."""

    def __init__(self, module: nn.Module) -> None:
        self.features: Tensor
        last_linear(module).register_forward_pre_hook(self._note)

    def _note(self, layer: nn.Module, given: tuple[Any, ...]) -> None:
        self.features = given[0]


def last_linear(module: nn.Module) -> nn.Linear:
    """The layer that turns features into logits."""
    linears = [part for part in module.modules() if isinstance(part, nn.Linear)]
    if not linears:
        raise SpecError("model: has no linear layer, so nothing can be said of its features")
    return linears[-1]
