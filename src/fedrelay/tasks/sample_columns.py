"""Columns of a table of predictions, which has a line for each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SampleColumns = dict[str, NDArray[Any]]
"""Column → a value for each sample; None where there is none."""


def numbered_columns(name: str, values: Tensor, *, always: bool = False) -> SampleColumns:
    """The numbers of samples: one column, or `NAME_0`, `NAME_1`, … where a sample has several.

    Args:
        name: The name of the column.
        values: `[samples]`, or `[samples, …]`.
        always: Number a single column, too.

    Example:
        >>> import torch
        >>> numbered_columns("target", torch.tensor([[1, 2], [3, 4]]))
        {'target_0': array([1, 3]), 'target_1': array([2, 4])}
    """
    columns = values.detach().cpu().reshape(len(values), values.shape[1:].numel()).T
    found = columns.float().numpy() if columns.is_floating_point() else columns.numpy()
    if len(found) == 1 and not always:
        return {name: found[0]}
    return {f"{name}_{number}": column for number, column in enumerate(found)}


def optional_numbers(values: list[float | None]) -> NDArray[Any]:
    """Numbers of which some are not known."""
    return np.array(values, dtype=object)
