"""FLOPs of training a module, counted on one real step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from fedrelay.errors import SpecError
from fedrelay.models.flat_layout import TORCH_GLOBALS, trained_dtype
from fedrelay.models.nested_inputs import Inputs, call_module, map_inputs, rows_of, with_float_type


def training_flops(module: nn.Module, inputs: Inputs, targets: Tensor, loss: Callable[[Any, Tensor], Tensor]) -> float:
    """FLOPs of one sample in a training step, forward and backward, counted on a real step of a copy on the CPU.

    Any batch of samples will do. Matrix products and convolutions are counted, a multiplication and an addition as two
    FLOPs; everything else is small beside them.
    """
    pair = [0, -1]  # two samples, because BatchNorm cannot train on one; they may be the same
    copied = copy.deepcopy(module).cpu().train()
    x = with_float_type(map_inputs(Tensor.cpu, rows_of(inputs, pair)), trained_dtype(copied, torch.float32))
    y = targets[pair].cpu()
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):  # dropout draws
        counter = FlopCounter()
        try:
            with counter, torch.enable_grad():
                loss(call_module(copied, x), y).backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # a module of the user may raise anything
            raise SpecError(f"model: cannot be trained: {type(error).__name__}: {error}") from None
    return counter.total / len(pair)


class FlopCounter(TorchDispatchMode):
    """Counts by PyTorch's formulas, and by our own for recurrent layers, which PyTorch does not count on CPUs.

    PyTorch's `FlopCounterMode` counts the same, but loads PyTorch's compiler first, which takes two seconds.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or else PyTorch loads the compiler only to keep it away from this class

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given, operation = dict(kwargs or {}), func._overloadpacket
        formula = _RECURRENT.get(operation) or flop_registry.get(operation)
        if formula is None:
            with self:
                result = func.decompose(*args, **given)
            if result is not NotImplemented:
                return result
        result = func(*args, **given)
        if formula is not None:
            self.total += formula(*args, **given, out_val=result)
        return result


def _recurrent_flops(inputs: Tensor, weights: Tensor, recurrent: Tensor, *_: object, **__: object) -> int:
    """FLOPs of a recurrent layer: both weight matrices are used in every step."""
    return 2 * math.prod(inputs.shape[:2]) * (weights.numel() + recurrent.numel())


_RECURRENT: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops,
    # The gradients of the inputs and of the weights cost as much as the forward pass, each.
    torch.ops.aten.mkldnn_rnn_layer_backward: lambda *given, **others: 2 * _recurrent_flops(*given, **others),
}
