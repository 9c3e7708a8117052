"""What goes into a model and what comes out: one tensor or several, and logits that may be part of an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedrelay.errors import DataError
from fedrelay.models.two_part_classifier import Shape

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""The inputs of a batch: one tensor, or several by position or by name. The first axis of each is the batch."""

InputShapes = Shape | tuple[Shape, ...] | dict[str, Shape]
"""The shape of one sample: that of its tensor, or those of its tensors in the same structure."""

T = TypeVar("T")


def map_inputs(change: Callable[[Tensor], T], inputs: Inputs) -> T | tuple[T, ...] | dict[str, T]:
    """The same structure with `change` applied to every tensor.

    Example:
        >>> map_inputs(len, {"tokens": torch.zeros(2, 5), "mask": torch.zeros(2, 5)})
        {'tokens': 2, 'mask': 2}
    """
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, dict):
        return {name: change(tensor) for name, tensor in inputs.items()}
    return tuple(map(change, inputs))


def tensors_of(inputs: Inputs) -> tuple[Tensor, ...]:
    """All tensors, in their order."""
    if isinstance(inputs, Tensor):
        return (inputs,)
    return tuple(inputs.values()) if isinstance(inputs, dict) else inputs


def with_tensors(inputs: Inputs, tensors: Sequence[Tensor]) -> Inputs:
    """The same structure with other tensors, in their order."""
    if isinstance(inputs, Tensor):
        return tensors[0]
    return dict(zip(inputs, tensors, strict=True)) if isinstance(inputs, dict) else tuple(tensors)


def named_tensors(inputs: Inputs) -> dict[str, Tensor]:
    """Each tensor with its name in messages.

    Example:
        >>> list(named_tensors({"tokens": torch.zeros(2, 5), "mask": torch.zeros(2, 5)}))
        ["inputs['tokens']", "inputs['mask']"]
    """
    if isinstance(inputs, Tensor):
        return {"inputs": inputs}
    return {
        f"inputs[{key!r}]": each for key, each in (inputs.items() if isinstance(inputs, dict) else enumerate(inputs))
    }


def rows_of(inputs: Inputs, rows: slice | Tensor | list[int]) -> Inputs:
    """Some rows of every tensor."""
    return inputs[rows] if isinstance(inputs, Tensor) else map_inputs(lambda tensor: tensor[rows], inputs)


def shapes_of(inputs: Inputs) -> InputShapes:
    """The shape of one sample of a batch."""
    return map_inputs(lambda tensor: tuple(tensor.shape[1:]), inputs)


def single_shape(shapes: InputShapes) -> Shape | None:
    """The shape of a sample that is one tensor; None for several."""
    if isinstance(shapes, dict) or any(isinstance(size, tuple) for size in shapes):
        return None
    return shapes  # type: ignore[return-value]


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Batches with the same structure as one batch. Inputs with names are joined by name, in any order.

    Raises:
        DataError: Their tensors differ in shape or in name.
    """
    first = parts[0]
    try:
        if isinstance(first, Tensor):
            return torch.cat(parts)  # type: ignore[arg-type]
        if isinstance(first, dict):
            named = [_with_names_of(first, part) for part in parts]
            return {name: torch.cat([part[name] for part in named]) for name in first}
        return tuple(torch.cat(column) for column in zip(*map(tensors_of, parts), strict=True))
    except (RuntimeError, TypeError, ValueError):
        raise DataError(
            "inputs: batches of different shapes cannot be joined in memory; let collate_fn pad all samples alike"
        ) from None


def _with_names_of(first: dict[str, Tensor], part: Inputs) -> dict[str, Tensor]:
    """The same part, which must have the names of the first one."""
    if isinstance(part, dict) and part.keys() == first.keys():
        return part
    found = ", ".join(part) if isinstance(part, dict) else "inputs without names"
    raise DataError(f"inputs: all batches must have the same names, got {', '.join(first)} and {found}")


def with_float_type(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The inputs with all floating-point numbers in one type; whole numbers stay as they are."""
    return map_inputs(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, inputs)


def call_module(module: nn.Module, inputs: Inputs) -> Any:
    """The outputs of a module: `module(x)` for a tensor, `module(*x)` for a tuple, `module(**x)` for a dict."""
    if isinstance(inputs, Tensor):
        return module(inputs)
    return module(**inputs) if isinstance(inputs, dict) else module(*inputs)


def logits_of(outputs: Any) -> Any:
    """The logits of an object or a dict that has them, such as the outputs of Hugging Face models; else `outputs`."""
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        return outputs.get("logits", outputs)
    return getattr(outputs, "logits", outputs)
