"""A module as one flat tensor: where each parameter and buffer lies in it.

The flat tensor holds the trainable parameters first, then everything that travels but is not trained
(frozen parameters, floating buffers such as BatchNorm statistics, integer buffers such as step counters).
Averaging is one matrix product over flat tensors, a hand-over one copy, a local term one line of algebra
on `flat[..., :layout.trainable]`. The last axis is always the model; leading axes are models side by side.

Integer buffers are carried as floating numbers, exact up to 2**24 in float32; a counter beyond that
stops counting, a larger constant is refused.
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

Part = Literal["trained", "carried", "counted"]

TORCH_GLOBALS = threading.RLock()
"""Held while torch's process-wide state (random stream, number of threads) is changed."""


@dataclass(frozen=True)
class LayoutEntry:
    """One named tensor of a module and its place in the flat tensor."""

    name: str
    shape: tuple[int, ...]
    offset: int
    part: Part
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """The number of values."""
        return prod(self.shape)

    def view(self, flat: Tensor) -> Tensor:
        """This entry inside one flat tensor, without copying."""
        return flat[self.offset : self.offset + self.size].view(self.shape)


@dataclass(frozen=True)
class FlatLayout:
    """The places of all entries. Equal layouts mean interchangeable flat tensors."""

    entries: tuple[LayoutEntry, ...]
    dtype: torch.dtype
    aliases: tuple[tuple[str, str], ...] = ()
    """Further names of shared tensors (tied weights): (alias, entry name)."""

    @classmethod
    def of(cls, module: nn.Module) -> FlatLayout:
        """Read the layout off a module; its parameters must share one floating type."""
        dtype = _common_dtype(module)
        entries: list[LayoutEntry] = []
        offset = 0
        for part, name, tensor in _parts(module):
            if part == "counted" and tensor.numel() and int(tensor.long().abs().max()) > 2 / torch.finfo(dtype).eps:
                raise SpecError(f"model: integer buffer {name!r} holds values too large to travel exactly as {dtype}")
            entries.append(LayoutEntry(name, tuple(tensor.shape), offset, part, tensor.dtype))
            offset += tensor.numel()
        return cls(tuple(entries), dtype, _aliases(module, {entry.name for entry in entries}))

    @property
    def size(self) -> int:
        """The length of the flat tensor."""
        return sum(entry.size for entry in self.entries)

    @property
    def trainable(self) -> int:
        """How many values at the front are trained."""
        return sum(entry.size for entry in self.entries if entry.part == "trained")

    @property
    def counters(self) -> int:
        """Where the integer buffers at the end begin; they merge by maximum, all before them by mean."""
        return self.size - sum(entry.size for entry in self.entries if entry.part == "counted")

    @property
    def bytes(self) -> int:
        """What one model weighs on the wire."""
        return self.size * self.dtype.itemsize

    def flatten(self, module: nn.Module) -> Tensor:
        """A new flat tensor with the module's present values."""
        flat = torch.empty(self.size, dtype=self.dtype)
        for entry, (_, _, tensor) in zip(self.entries, _parts(module), strict=True):
            entry.view(flat).copy_(tensor.detach())
        return flat

    def state_dict(self, flat: Tensor) -> dict[str, Tensor]:
        """The named tensors of one flat tensor, copied, in their own types: what users load into their module."""
        named = {entry.name: entry.view(flat).to(entry.dtype).clone() for entry in self.entries}
        return named | {alias: named[name].clone() for alias, name in self.aliases}


class FlatModule:
    """A module whose parameters, buffers and gradients are views into two flat tensors.

    Training works on `flat` and `gradient` directly; loading a model is one copy. Buffers that a module replaces
    instead of changing them are read where the module put them, and everything else it keeps (buffers that are not
    part of its state) is set back at every load: nothing leaks from one client to the next.
    """

    def __init__(self, module: nn.Module, layout: FlatLayout, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        self.layout = layout
        self.flat = layout.flatten(module).to(device)
        self.gradient = torch.zeros(layout.trainable, dtype=layout.dtype, device=device)
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
        travelling = {(id(owner), leaf) for _, owner, leaf in self._buffers}
        self._private = [
            (owner, leaf, value.clone())
            for owner in module.modules()
            for leaf, value in owner._buffers.items()
            if value is not None and (id(owner), leaf) not in travelling
        ]

    @property
    def trained(self) -> Tensor:
        """The trainable part of `flat`."""
        return self.flat[: self.layout.trainable]

    def inputs(self, x: Tensor) -> Tensor:
        """Samples as the module expects them; images channels-last, which makes convolutions on a CPU fast."""
        x = x.to(self.flat.device, self.flat.dtype if x.is_floating_point() else x.dtype)
        if x.dim() == 4 and x.shape[1] == 1 and x.is_contiguous():
            # One channel lies in memory the same either way; only the strides say which order is meant.
            return x.as_strided(x.shape, (x.stride(0), 1, x.stride(2), 1))
        return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x

    def load(self, flat: Tensor) -> None:
        """Take over a model."""
        self.flat.copy_(flat)
        for entry, owner, leaf in self._buffers:
            view = entry.view(self.flat)
            owner._buffers[leaf] = view if entry.part == "carried" else view.to(entry.dtype)
        for owner, leaf, value in self._private:
            owner._buffers[leaf] = value.clone()

    def collect(self) -> Tensor:
        """The whole model as it is now: `flat`, with the buffers that the module keeps elsewhere."""
        for entry, owner, leaf in self._buffers:
            value = owner._buffers[leaf]
            assert value is not None
            if entry.part == "counted" or value.data_ptr() != entry.view(self.flat).data_ptr():
                entry.view(self.flat).copy_(value.detach())
        return self.flat


def weights_sha256(flat: Tensor) -> str:
    """The fingerprint by which runs are compared bit for bit."""
    return hashlib.sha256(flat.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def _parts(module: nn.Module) -> Iterator[tuple[Part, str, Tensor]]:
    """Named tensors in the order of the flat tensor; shared tensors once, non-persistent buffers not at all."""
    parameters = list(module.named_parameters())
    travelling = module.state_dict(keep_vars=True)
    buffers = [(name, tensor) for name, tensor in module.named_buffers() if name in travelling]
    yield from (("trained", name, tensor) for name, tensor in parameters if tensor.requires_grad)
    yield from (("carried", name, tensor) for name, tensor in parameters if not tensor.requires_grad)
    yield from (("carried", name, tensor) for name, tensor in buffers if tensor.is_floating_point())
    yield from (("counted", name, tensor) for name, tensor in buffers if not tensor.is_floating_point())


def _aliases(module: nn.Module, names: set[str]) -> tuple[tuple[str, str], ...]:
    travelling = module.state_dict(keep_vars=True)
    first_name = {id(tensor): name for name, tensor in travelling.items() if name in names}
    return tuple((name, first_name[id(tensor)]) for name, tensor in travelling.items() if name not in names)


def _common_dtype(module: nn.Module) -> torch.dtype:
    parameters = list(module.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise SpecError("model: it has no trainable parameters")
    dtypes = {parameter.dtype for parameter in parameters}
    if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
        names = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise SpecError(f"model: all parameters must share one floating type, found {names}")
    return dtypes.pop()


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf
