"""A module as one flat tensor: the position of each parameter and buffer.

The flat tensor holds the trained parameters first, then everything that is sent but not trained: frozen parameters,
floating-point buffers such as BatchNorm statistics, and integer buffers such as step counters. A mean is then a sum of
tensors, sending a model one copy, and a local term a few lines of algebra on `flat[..., :layout.trained_size]`. The
last axis is always the model; leading axes are batched models.

Integer buffers are stored as floating-point numbers, exact up to 2**24 in float32; a counter beyond that stops
counting, a larger constant is refused.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError

Part = Literal["trained", "untrained", "integer"]

TORCH_GLOBALS = threading.RLock()
"""Held while torch's process-wide state (random generator, number of threads) is changed."""


@dataclass(frozen=True)
class LayoutEntry:
    """One named tensor of a module and its position in the flat tensor."""

    name: str
    shape: tuple[int, ...]
    offset: int
    part: Part
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return prod(self.shape)

    def view(self, flat: Tensor) -> Tensor:
        """This entry of a flat tensor, without copying."""
        return flat[self.offset : self.offset + self.size].view(self.shape)


@dataclass(frozen=True)
class FlatLayout:
    """The positions of all entries. Flat tensors with equal layouts are interchangeable."""

    entries: tuple[LayoutEntry, ...]
    dtype: torch.dtype
    aliases: tuple[tuple[str, str], ...] = ()
    """Other names of shared tensors (tied weights): (alias, entry name)."""

    @classmethod
    def of(cls, module: nn.Module) -> FlatLayout:
        """The layout of a module. Its parameters must share one floating-point type."""
        dtype = _common_dtype(module)
        entries: list[LayoutEntry] = []
        offset = 0
        for part, name, tensor in _parts(module):
            if part == "integer" and tensor.numel() and int(tensor.long().abs().max()) > 2 / torch.finfo(dtype).eps:
                raise SpecError(
                    f"model: integer buffer {name!r} holds values too large to be stored exactly as {dtype}"
                )
            entries.append(LayoutEntry(name, tuple(tensor.shape), offset, part, tensor.dtype))
            offset += tensor.numel()
        return cls(tuple(entries), dtype, _aliases(module, {entry.name for entry in entries}))

    @property
    def size(self) -> int:
        """The length of the flat tensor."""
        return sum(entry.size for entry in self.entries)

    @property
    def trained_size(self) -> int:
        """The number of trained values, which come first."""
        return sum(entry.size for entry in self.entries if entry.part == "trained")

    @property
    def float_size(self) -> int:
        """The number of values before the integer buffers. These values merge by mean, integers by maximum."""
        return self.size - sum(entry.size for entry in self.entries if entry.part == "integer")

    @property
    def bytes(self) -> int:
        """The size of one model in bytes."""
        return self.size * self.dtype.itemsize

    def flatten(self, module: nn.Module) -> Tensor:
        """A new flat tensor with the module's current values."""
        flat = torch.empty(self.size, dtype=self.dtype)
        for entry, (_, _, tensor) in zip(self.entries, _parts(module), strict=True):
            entry.view(flat).copy_(tensor.detach())
        return flat

    def state_dict(self, flat: Tensor) -> dict[str, Tensor]:
        """The named tensors of a flat tensor, copied, in their own types, for `module.load_state_dict`."""
        named = {entry.name: entry.view(flat).to(entry.dtype).clone() for entry in self.entries}
        return named | {alias: named[name].clone() for alias, name in self.aliases}


class FlatModule:
    """A module whose parameters, buffers and gradients are views into two flat tensors.

    Training works on `flat` and `gradient` directly; loading a model is one copy. If a module replaces a buffer instead
    of changing it in place, `collect` reads the new one. Non-persistent buffers are reset at every load. So nothing
    leaks from one client to the next.
    """

    def __init__(self, module: nn.Module, layout: FlatLayout, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        self.layout = layout
        self.flat = layout.flatten(module).to(device)
        self.gradient = torch.zeros(layout.trained_size, dtype=layout.dtype, device=device)
        self._buffers: list[tuple[LayoutEntry, nn.Module, str]] = []
        for entry in layout.entries:
            owner, leaf = _owner(module, entry.name)
            if leaf not in owner._parameters:
                self._buffers.append((entry, owner, leaf))
                continue
            parameter = owner._parameters[leaf]
            assert parameter is not None
            parameter.data = entry.view(self.flat)
            if entry.part == "trained":
                parameter.grad = entry.view(self.gradient)
        persistent = {(id(owner), leaf) for _, owner, leaf in self._buffers}
        self._private = [
            (owner, leaf, value.clone())
            for owner in module.modules()
            for leaf, value in owner._buffers.items()
            if value is not None and (id(owner), leaf) not in persistent
        ]

    @property
    def trained(self) -> Tensor:
        """The trained part of `flat`."""
        return self.flat[: self.layout.trained_size]

    def to_inputs(self, x: Tensor) -> Tensor:
        """Samples on the module's device and in its type; images channels-last, which is fast on a CPU."""
        x = x.to(self.flat.device, self.flat.dtype if x.is_floating_point() else x.dtype)
        if x.dim() == 4 and x.shape[1] == 1 and x.is_contiguous():
            # With one channel the memory is the same either way; only the strides say which order is meant.
            return x.as_strided(x.shape, (x.stride(0), 1, x.stride(2), 1))
        return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x

    def load(self, flat: Tensor) -> None:
        """Load a model."""
        self.flat.copy_(flat)
        for entry, owner, leaf in self._buffers:
            view = entry.view(self.flat)
            owner._buffers[leaf] = view if entry.part == "untrained" else view.to(entry.dtype)
        for owner, leaf, value in self._private:
            owner._buffers[leaf] = value.clone()

    def collect(self) -> Tensor:
        """The current model: `flat`, after copying buffers that the module keeps elsewhere."""
        for entry, owner, leaf in self._buffers:
            value = owner._buffers[leaf]
            assert value is not None
            if entry.part == "integer" or value.data_ptr() != entry.view(self.flat).data_ptr():
                entry.view(self.flat).copy_(value.detach())
        return self.flat


def weights_sha256(flat: Tensor) -> str:
    """A hash of a model, to compare runs bit for bit."""
    return hashlib.sha256(flat.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def _parts(module: nn.Module) -> Iterator[tuple[Part, str, Tensor]]:
    """Named tensors in the order of the flat tensor: shared tensors once, non-persistent buffers not at all."""
    parameters = list(module.named_parameters())
    persistent = module.state_dict(keep_vars=True)
    buffers = [(name, tensor) for name, tensor in module.named_buffers() if name in persistent]
    yield from (("trained", name, tensor) for name, tensor in parameters if tensor.requires_grad)
    yield from (("untrained", name, tensor) for name, tensor in parameters if not tensor.requires_grad)
    yield from (("untrained", name, tensor) for name, tensor in buffers if tensor.is_floating_point())
    yield from (("integer", name, tensor) for name, tensor in buffers if not tensor.is_floating_point())


def _aliases(module: nn.Module, names: set[str]) -> tuple[tuple[str, str], ...]:
    persistent = module.state_dict(keep_vars=True)
    first_name = {id(tensor): name for name, tensor in persistent.items() if name in names}
    return tuple((name, first_name[id(tensor)]) for name, tensor in persistent.items() if name not in names)


def _common_dtype(module: nn.Module) -> torch.dtype:
    parameters = list(module.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise SpecError("model: has no trainable parameters")
    dtypes = {parameter.dtype for parameter in parameters}
    if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
        names = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise SpecError(f"model: all parameters must share one floating-point type, found {names}")
    return dtypes.pop()


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf
