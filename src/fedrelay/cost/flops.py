"""FLOPs of training a module, counted on one real step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.models.flat_layout import TORCH_GLOBALS, trained_dtype
from fedrelay.models.nested_inputs import Inputs, call_module, map_inputs, rows_of, with_float_type


def training_flops(module: nn.Module, inputs: Inputs, targets: Tensor, loss: Callable[[Any, Tensor], Tensor]) -> float:
    """FLOPs of one sample in a training step, forward and backward, counted on a real step of a copy on the CPU.

    Any batch of samples will do. Matrix products and convolutions are counted, a multiplication and an addition as two
    FLOPs; everything else is small beside them.
    """
    from torch.utils.flop_counter import FlopCounterMode  # takes seconds to load

    pair = [0, -1]  # two samples, because BatchNorm cannot train on one; they may be the same
    formulas = {
        torch.ops.aten.mkldnn_rnn_layer: _recurrent_flops,
        # The gradients of the inputs and of the weights cost as much as the forward pass, each.
        torch.ops.aten.mkldnn_rnn_layer_backward: lambda *shapes, **others: 2 * _recurrent_flops(*shapes, **others),
    }
    copied = copy.deepcopy(module).cpu().train()
    x = with_float_type(map_inputs(Tensor.cpu, rows_of(inputs, pair)), trained_dtype(copied, torch.float32))
    y = targets[pair].cpu()
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):  # dropout draws
        counter = FlopCounterMode(display=False, custom_mapping=formulas)
        try:
            with counter, torch.enable_grad():
                loss(call_module(copied, x), y).backward()  # type: ignore[no-untyped-call]
        except Exception as error:  # a module of the user may raise anything
            raise SpecError(f"model: cannot be trained: {type(error).__name__}: {error}") from None
    return counter.get_total_flops() / len(pair)


def _recurrent_flops(
    inputs: Sequence[int], weights: Sequence[int], recurrent: Sequence[int], *_: object, **__: object
) -> int:
    """FLOPs of a recurrent layer, which PyTorch does not count on CPUs: both weight matrices are used in every step."""
    return 2 * math.prod(inputs[:2]) * (math.prod(weights) + math.prod(recurrent))
