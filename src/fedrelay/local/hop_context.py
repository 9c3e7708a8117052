"""The tensors of a client's hop, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
Labels = Literal["data", "model"]
"""Which labels to use: those of the samples, or labels drawn from the model's probabilities."""

_NO_LIMIT = torch.tensor([torch.inf])
_ONE = torch.ones(1)


class InPlaceTensors(dict[str, Tensor]):
    """Tensors that hooks write to in place; another tensor in their place would be lost."""

    def __setitem__(self, name: str, tensor: Tensor) -> NoReturn:
        raise TypeError(f"the tensor {name!r} cannot be replaced; write to it in place, such as with .copy_(new)")

    def update(self, *others: Any, **tensors: Tensor) -> NoReturn:
        raise TypeError("tensors cannot be replaced; write to each in place, such as with .copy_(new)")


@dataclass(frozen=True)
class HopContext:
    """The tensors of one hop, or of several batched hops.

    Models, states and payloads are `[size]`, or `[lanes, size]` for batched hops; `max_update_norm`, `relative_size`
    and `route_lr_sum` are `[1]`, or `[lanes, 1]`. `size` is that of the trained part of a model; whole models are in
    `TrainedHop.full_context` and in the context of `adjust_received_model` and `LossTerm.loss`.

    Hooks write to `new_client_state` and `payload` in place; all other tensors are read-only.
    """

    received: Tensor
    """The model that this client received."""

    sent_round_model: Tensor | None = None
    """The global model at the start of the round, if a term needs it; hooks read `round_model`."""

    server_state: Tensors = field(default_factory=dict)
    """The tensors that the server sends to every client."""

    client_state: Tensors = field(default_factory=dict)
    """The tensors that this client kept from its last hop; zeros at first."""

    new_client_state: Tensors = field(default_factory=dict)
    """The tensors that it keeps for its next hop: a copy of `client_state` until a term changes them."""

    payload: Tensors = field(default_factory=dict)
    """The tensors that travel with the model."""

    max_update_norm: Tensor = _NO_LIMIT
    """The largest allowed norm of an update: `[1]`, or `[lanes, 1]`."""

    relative_size: Tensor = _ONE
    """The client's number of samples divided by the mean of all clients: `[1]`, or `[lanes, 1]`."""

    route_lr_sum: Tensor = _ONE
    """The sum of the learning rates of all steps of the route, as if all its hops were like this one: `[1]`, or
    `[lanes, 1]`. With −d / route_lr_sum in the gradient of every step, SGD moves a model by d on its route."""

    @property
    def round_model(self) -> Tensor:
        """The global model at the start of the round.

        Raises:
            AttributeError: No term of the method has `needs_round_model`, so this model is not sent to clients.
        """
        if self.sent_round_model is None:
            raise AttributeError("round_model is not sent to clients; needs_round_model of the term must return True")
        return self.sent_round_model

    def map(self, change: Callable[[Tensor], Tensor]) -> HopContext:
        """The same context with `change` applied to every tensor."""
        return _combine([self], lambda tensors: change(tensors[0]))

    def first_lanes(self, lanes: int) -> HopContext:
        """The first lanes of a batched context."""
        return self if lanes == len(self.received) else self.map(lambda tensor: tensor[:lanes])


def batch_contexts(contexts: Sequence[HopContext], device: torch.device) -> HopContext:
    """Stack several contexts into one batched context, in new memory on a device."""
    return _combine(contexts, lambda tensors: torch.stack(tensors).to(device))


def write_back(batched: HopContext, contexts: Sequence[HopContext]) -> None:
    """Copy what hooks wrote to a batched context back to the single contexts."""
    for lane, context in enumerate(contexts):
        for target, source in (
            (context.new_client_state, batched.new_client_state),
            (context.payload, batched.payload),
        ):
            for name, tensor in target.items():
                tensor.copy_(source[name][lane])


_FIELDS = tuple(each.name for each in fields(HopContext))


def _combine(contexts: Sequence[HopContext], join: Callable[[list[Tensor]], Tensor]) -> HopContext:
    def joined(values: list[Tensor | Tensors | None]) -> Tensor | Tensors | None:
        first = values[0]
        if first is None:
            return None
        if isinstance(first, Tensor):
            return join(values)  # type: ignore[arg-type]
        return InPlaceTensors({name: join([tensors[name] for tensors in values]) for name in first})  # type: ignore[index]

    return HopContext(*(joined([getattr(context, name) for context in contexts]) for name in _FIELDS))  # type: ignore[arg-type]


def _not_available(labels: Labels) -> Tensor:
    raise NotImplementedError("the Fisher information needs the samples of a client")


@dataclass(frozen=True)
class TrainedHop:
    """The outcome of a hop; tensors are the trained part of one model or of several batched models."""

    trained: Tensor
    """The model after the last step."""

    sent: Tensor
    """The model that the client sends: the trained one, unless a term changed it."""

    steps: float | Tensor
    """The number of steps; `[lanes, 1]` for batched models."""

    lr: float | Tensor
    """The learning rate of these steps; `[lanes, 1]` for batched models that differ in it."""

    full_model: Tensor
    """The model that the client sends, with its untrained part."""

    full_context: HopContext
    """The context with whole models."""

    optimizer_state: Tensors = field(default_factory=dict)
    """What the optimiser remembers after the last step."""

    fisher: Callable[[Labels], Tensor] = _not_available
    """The diagonal of the Fisher information on this client's samples, at the model that the client sends; `[lanes,
    size]` for batched models."""
