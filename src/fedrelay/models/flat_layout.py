"""A module as one flat tensor: the position of each parameter and buffer.

The flat tensor holds what training changes: the trained parameters first, then floating-point buffers such as BatchNorm
statistics, then integer buffers such as step counters. A mean is then a sum of tensors, sending a model one copy, and a
local term a few lines of algebra on `flat[..., :layout.trained_size]`. The last axis is always the model; leading axes
are batched models.

Frozen parameters (`requires_grad=False`) are not in the flat tensor. They are fixed, so they belong to the module,
which every client receives once. Only frozen parameters that a term rewrites at every hop travel, before the buffers;
the module names them (`HasFrozenParametersSetByTerms`).

Integer buffers are stored as floating-point numbers, exact up to 2**24 in float32; a counter beyond that stops
counting, a larger constant is refused.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from operator import setitem
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from fedrelay.errors import SpecError
from fedrelay.experiment.sections import Precision
from fedrelay.models.nested_inputs import Inputs, call_module, map_inputs

Part = Literal["trained", "untrained", "integer"]

LARGE = 300_000
"""Models with this many trained values treat each gradient by itself; for smaller ones, so many calls cost more."""

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
class FrozenParameter:
    """One frozen parameter of a module, of any type. It is not in the flat tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


@runtime_checkable
class HasFrozenParametersSetByTerms(Protocol):
    """A module with frozen parameters that a term rewrites at every hop, so that they travel with the model."""

    def rewritten_parameters(self) -> Collection[str]:
        """The names of these parameters in this module."""


@dataclass(frozen=True)
class FlatLayout:
    """The positions of all entries. Flat tensors with equal layouts are interchangeable."""

    entries: tuple[LayoutEntry, ...]
    dtype: torch.dtype
    aliases: tuple[tuple[str, str], ...] = ()
    """Other names of shared tensors (tied weights): (alias, entry name)."""

    frozen: tuple[FrozenParameter, ...] = ()
    """The parameters that stay with the module."""

    @classmethod
    def of(cls, module: nn.Module) -> FlatLayout:
        """The layout of a module. Its trained parameters must share one floating-point type."""
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
        frozen = tuple(
            FrozenParameter(name, tuple(tensor.shape), tensor.dtype) for name, tensor in frozen_parameters(module)
        )
        names = {*(entry.name for entry in entries), *(entry.name for entry in frozen)}
        return cls(tuple(entries), dtype, _aliases(module, names), frozen)

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The name and the shape of each entry, in their order; as plain data."""
        return {entry.name: list(entry.shape) for entry in self.entries}

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
        """The bytes of one model in flight."""
        return self.size * self.dtype.itemsize

    @property
    def frozen_bytes(self) -> int:
        """The bytes of the parameters that stay with the module."""
        return sum(entry.bytes for entry in self.frozen)

    def flatten(self, module: nn.Module) -> Tensor:
        """A new flat tensor with the module's current values."""
        flat = torch.empty(self.size, dtype=self.dtype)
        for entry, (_, _, tensor) in zip(self.entries, _parts(module), strict=True):
            entry.view(flat).copy_(tensor.detach())
        return flat

    def state_dict(self, flat: Tensor, module: nn.Module) -> dict[str, Tensor]:
        """The complete model, for `module.load_state_dict`: tensors by name, copied, in their own types.

        Args:
            flat: What travels.
            module: The module that holds the frozen parameters.
        """
        named = {entry.name: entry.view(flat).to(entry.dtype).clone() for entry in self.entries}
        named |= {name: tensor.detach().cpu().clone() for name, tensor in frozen_parameters(module)}
        return named | {alias: named[name].clone() for alias, name in self.aliases}


class FlatModule:
    """A copy of a module whose parameters, buffers and gradients are views into two flat tensors.

    Training works on `flat` and `gradient` directly; loading a model is one copy. Frozen parameters stay as they are.
    If a module replaces a buffer instead of changing it in place, `collect` reads the new one. Non-persistent buffers
    are reset at every load. So nothing leaks from one client to the next.
    """

    def __init__(
        self,
        module: nn.Module,
        layout: FlatLayout,
        device: torch.device | str = "cpu",
        precision: Precision = "float32",
    ) -> None:
        self.layout = layout
        self.precision = precision
        self.flat = layout.flatten(module).to(device)
        self.module = module = _copy_over(module, layout, self.flat).to(device)
        self._without_gradient: set[LayoutEntry] = set()
        """Of a large model: entries that the backward pass has not reached yet."""

        self._large = layout.trained_size >= LARGE
        self._moves_gradients = True
        self._trained_parameters: list[nn.Parameter] = []
        self._buffers: list[tuple[LayoutEntry, nn.Module, str]] = []
        for entry in layout.entries:
            owner, leaf = _owner(module, entry.name)
            if leaf not in owner._parameters:
                self._buffers.append((entry, owner, leaf))
                continue
            parameter = owner._parameters[leaf]
            assert parameter is not None
            if entry.part == "trained":
                self._trained_parameters.append(parameter)
            if entry.part == "trained" and self._large:
                take = partial(self._take_gradient, entry)
                parameter.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]
            elif entry.part == "trained":
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

    @cached_property
    def gradient(self) -> Tensor:
        """The gradient of the trained part; a large model that only descends never needs it."""
        return torch.zeros_like(self.trained)

    def to_inputs(self, x: Inputs) -> Inputs:
        """Samples on the module's device and in its type; images channels-last, which is fast on a CPU."""
        return map_inputs(self._to_input, x)

    def _to_input(self, x: Tensor) -> Tensor:
        x = x.to(self.flat.device, self.flat.dtype if x.is_floating_point() else x.dtype)
        if x.dim() == 4 and x.shape[1] == 1 and x.is_contiguous():
            # With one channel the memory is the same either way; only the strides say which order is meant.
            return x.as_strided(x.shape, (x.stride(0), 1, x.stride(2), 1))
        return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x

    def outputs(self, inputs: Inputs) -> Any:
        """The module's outputs for a batch. Mixed precision ends here: losses and metrics get float32."""
        if self.precision == "float32":
            return call_module(self.module, inputs)
        with torch.autocast(self.flat.device.type, torch.bfloat16):
            return in_float32(call_module(self.module, inputs))

    def compute_gradient(self, loss: Tensor) -> Tensor:
        """Compute the gradient of a loss: `gradient`, until the next call.

        PyTorch computes the gradient of a parameter in new memory and adds it to the old one. Of a large model, that
        and setting the old one to zero take a tenth of a step; its gradients are moved instead, one by one.
        """
        if not self._large:
            self.gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            return self.gradient
        self._without_gradient = {entry for entry in self.layout.entries if entry.part == "trained"}
        loss.backward()  # type: ignore[no-untyped-call]
        for entry in self._without_gradient:
            entry.view(self.gradient).zero_()
        return self.gradient

    def descend(self, loss: Tensor, lr: float) -> None:
        """Take a step of plain gradient descent, θ ← θ − ηg, without keeping g.

        In a large model every parameter is moved by the gradient that PyTorch has made for it: `gradient` would be
        written and read for nothing. Not before the backward pass has ended, because it still needs the weights.
        """
        if not self._large:
            self.trained.add_(self.compute_gradient(loss), alpha=-lr)
            return
        self._moves_gradients = False
        try:
            loss.backward()  # type: ignore[no-untyped-call]
            for parameter in self._trained_parameters:
                if parameter.grad is not None:
                    parameter.detach().add_(parameter.grad.to_dense(), alpha=-lr)
        finally:
            self._moves_gradients = True
            for parameter in self._trained_parameters:
                parameter.grad = None

    def _take_gradient(self, entry: LayoutEntry, parameter: Tensor) -> None:
        if not self._moves_gradients:
            return
        assert parameter.grad is not None
        # A sum that starts at 0, as PyTorch's would: no zero is negative.
        torch.add(parameter.grad.to_dense(), 0.0, out=entry.view(self.gradient))
        parameter.grad = None
        self._without_gradient.discard(entry)

    def private_buffers(self) -> list[Tensor | None]:
        """The non-persistent buffers as they are now; they are not part of the model."""
        return [owner._buffers[leaf] for owner, leaf, _ in self._private]

    def set_private_buffers(self, values: list[Tensor | None]) -> None:
        """Set the non-persistent buffers."""
        for (owner, leaf, first), value in zip(self._private, values, strict=True):
            owner._buffers[leaf] = None if value is None else value.to(first.device)

    def load(self, flat: Tensor) -> None:
        """Load a model."""
        self.flat.copy_(flat)
        for entry, owner, leaf in self._buffers:
            view = entry.view(self.flat)
            owner._buffers[leaf] = view.to(entry.dtype)  # the view itself if it has that type already
        for owner, leaf, value in self._private:
            owner._buffers[leaf] = value.clone()

    def collect(self) -> Tensor:
        """The current model: `flat`, after copying buffers that the module keeps elsewhere."""
        for entry, owner, leaf in self._buffers:
            value = owner._buffers[leaf]
            assert value is not None
            if value.data_ptr() != entry.view(self.flat).data_ptr():
                entry.view(self.flat).copy_(value.detach())
        return self.flat


def in_float32(outputs: Any) -> Any:
    """A module's outputs, of any structure, with every bfloat16 tensor as float32. Objects are copied, not changed."""
    return tree_map(_leaf_in_float32, outputs)


def _leaf_in_float32(leaf: Any) -> Any:
    """A tensor, or an object with tensors such as `logits`, which PyTorch does not look into."""
    if isinstance(leaf, Tensor):
        return leaf.float() if leaf.dtype == torch.bfloat16 else leaf
    put: Callable[[Any, Any, Any], None] = object.__setattr__  # also if the object is frozen
    if isinstance(leaf, MutableMapping):
        values, put = dict(leaf), setitem
    else:
        names = (*getattr(leaf, "__dict__", ()), *getattr(type(leaf), "__slots__", ()))
        values = {name: getattr(leaf, name, None) for name in names}
    halves = {
        name: value for name, value in values.items() if isinstance(value, Tensor) and value.dtype == torch.bfloat16
    }
    if not halves:
        return leaf
    found = copy.copy(leaf)
    for name, tensor in halves.items():
        put(found, name, tensor.float())
    return found


def weights_sha256(flat: Tensor) -> str:
    """A hash of a model, to compare runs bit for bit."""
    return hashlib.sha256(flat.detach().cpu().contiguous().view(torch.uint8).numpy().data).hexdigest()


def trained_dtype(module: nn.Module, otherwise: torch.dtype) -> torch.dtype:
    """The type of the first trained parameter, in which samples come; `otherwise` if there is none."""
    return next((each.dtype for each in module.parameters() if each.requires_grad), otherwise)


def frozen_parameters(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The parameters that stay with the module, by name; shared ones once."""
    travelling = rewritten_parameters(module)
    parameters = module.named_parameters()
    return [(name, each) for name, each in parameters if not each.requires_grad and name not in travelling]


def rewritten_parameters(module: nn.Module) -> set[str]:
    """The names of the frozen parameters that travel, because a term rewrites them."""
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in module.named_modules()
        if isinstance(part, HasFrozenParametersSetByTerms)
        for name in part.rewritten_parameters()
    }


def _parts(module: nn.Module) -> Iterator[tuple[Part, str, Tensor]]:
    """Named tensors in the order of the flat tensor: shared tensors once, non-persistent buffers not at all."""
    parameters, rewritten = list(module.named_parameters()), rewritten_parameters(module)
    persistent = module.state_dict(keep_vars=True)
    buffers = [(name, tensor) for name, tensor in module.named_buffers() if name in persistent]
    yield from (("trained", name, tensor) for name, tensor in parameters if tensor.requires_grad)
    yield from (("untrained", name, each) for name, each in parameters if name in rewritten and not each.requires_grad)
    yield from (("untrained", name, tensor) for name, tensor in buffers if tensor.is_floating_point())
    yield from (("integer", name, tensor) for name, tensor in buffers if not tensor.is_floating_point())


def _aliases(module: nn.Module, names: set[str]) -> tuple[tuple[str, str], ...]:
    persistent = module.state_dict(keep_vars=True)
    first_name = {id(tensor): name for name, tensor in persistent.items() if name in names}
    return tuple((name, first_name[id(tensor)]) for name, tensor in persistent.items() if name not in names)


def _common_dtype(module: nn.Module) -> torch.dtype:
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise SpecError("model: has no trainable parameters")
    rewritten = rewritten_parameters(module)
    dtypes = {each.dtype for name, each in module.named_parameters() if each.requires_grad or name in rewritten}
    if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
        names = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise SpecError(f"model: all trained parameters must share one floating-point type, found {names}")
    return dtypes.pop()


def _copy_over(module: nn.Module, layout: FlatLayout, flat: Tensor) -> nn.Module:
    """A copy whose parameters are views into a flat tensor from the start: a large model is not copied twice."""
    parameters = dict(module.named_parameters())
    views = {
        id(parameter): nn.Parameter(entry.view(flat), parameter.requires_grad)
        for entry in layout.entries
        if (parameter := parameters.get(entry.name)) is not None
    }
    return copy.deepcopy(module, views)


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf
