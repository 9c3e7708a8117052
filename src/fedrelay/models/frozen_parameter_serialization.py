"""The frozen parameters of a module as bytes: to send them once, and to tell whether two modules have the same ones."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.models.flat_layout import frozen_parameters

Bytes = NDArray[np.uint8]


def frozen_bytes(module: nn.Module) -> Bytes:
    """The frozen parameters of a module, one after another, each in its own type."""
    parts = [tensor.detach().cpu().contiguous().flatten() for _, tensor in frozen_parameters(module)]
    return np.concatenate([np.empty(0, np.uint8), *(part.view(torch.uint8).numpy() for part in parts)])


def frozen_sha256(frozen: Bytes) -> str:
    """A hash of frozen parameters."""
    return hashlib.sha256(frozen.data).hexdigest()


def load_frozen_bytes(module: nn.Module, frozen: Bytes) -> None:
    """Set the frozen parameters of a module to these values.

    Raises:
        ValueError: They have another number of bytes.
    """
    parameters = [tensor for _, tensor in frozen_parameters(module)]
    if len(frozen) != sum(each.numel() * each.itemsize for each in parameters):
        raise ValueError("the frozen parameters have another number of bytes")
    begin = 0
    for each in parameters:
        end = begin + each.numel() * each.itemsize
        each.data = _tensor(frozen[begin:end], each)
        begin = end


def _tensor(raw: Bytes, like: Tensor) -> Tensor:
    """A tensor in memory of its own."""
    return torch.from_numpy(raw.copy()).view(like.dtype).view(like.shape)
