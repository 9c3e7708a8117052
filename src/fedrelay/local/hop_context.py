"""What a client has in hand during its turn, and what it has when the turn is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
Labels = Literal["data", "model"]
"""Whose labels: those the samples have, or those the model would give them, drawn by its probabilities."""


_ENDLESS = torch.tensor([torch.inf])
_AVERAGE = torch.ones(1)


@dataclass(frozen=True)
class HopContext:
    """The tensors of one turn, each `[size]`, or of several side by side, each `[lanes, size]`.

    `kept` and `payload` are written in place, all others only read.
    """

    recv: Tensor
    """The model handed to this client."""

    round: Tensor
    """The model of the round, from which all routes set off."""

    server: Tensors = field(default_factory=dict)
    """What else the server tells everybody."""

    state: Tensors = field(default_factory=dict)
    """What this client kept from its last turn; zeros at first."""

    kept: Tensors = field(default_factory=dict)
    """What it keeps for its next turn: the state, until a term writes something else."""

    payload: Tensors = field(default_factory=dict)
    """What travels along with the model."""

    longest: Tensor = _ENDLESS
    """The longest that an update may be: `[1]`, or `[lanes, 1]`."""

    size: Tensor = _AVERAGE
    """How many samples this client has, as a multiple of the mean of all clients: `[1]`, or `[lanes, 1]`."""

    def each(self, change: Callable[[Tensor], Tensor]) -> HopContext:
        """The same with every tensor changed."""
        return _joined([self], lambda tensors: change(tensors[0]))

    def first(self, lanes: int) -> HopContext:
        """The first of several side by side."""
        return self if lanes == len(self.recv) else self.each(lambda tensor: tensor[:lanes])


def batch_contexts(visits: Sequence[HopContext]) -> HopContext:
    """Several visits as one, in new tensors."""
    return _joined(visits, torch.stack)


def write_back(stacked: HopContext, visits: Sequence[HopContext]) -> None:
    """Bring what was written to stacked visits to the visits themselves."""
    for lane, visit in enumerate(visits):
        for ours, theirs in ((visit.kept, stacked.kept), (visit.payload, stacked.payload)):
            for name, tensor in ours.items():
                tensor.copy_(theirs[name][lane])


def _joined(visits: Sequence[HopContext], join: Callable[[list[Tensor]], Tensor]) -> HopContext:
    def named(kind: str) -> Tensors:
        held: list[Tensors] = [getattr(visit, kind) for visit in visits]
        return {name: join([tensors[name] for tensors in held]) for name in held[0]}

    return HopContext(
        join([visit.recv for visit in visits]),
        join([visit.round for visit in visits]),
        named("server"),
        named("state"),
        named("kept"),
        named("payload"),
        join([visit.longest for visit in visits]),
        join([visit.size for visit in visits]),
    )


def _unknown(labels: Labels) -> Tensor:
    raise NotImplementedError("only known of models that are trained one by one")


@dataclass(frozen=True)
class HopOutcome:
    """How a turn ended; tensors are the trained part, one model or several side by side."""

    trained: Tensor
    """The model after the last step."""

    handed_on: Tensor
    """The model that is handed on: the same, unless a term changed it after training."""

    steps: float | Tensor
    """How many steps were taken, of several models `[lanes, 1]`."""

    lr: float
    """How long they were."""

    model: Tensor
    """The model that is handed on with all that is not trained."""

    whole: HopContext
    """The visit with all that is not trained."""

    fisher: Callable[[Labels], Tensor] = _unknown
    """The mean squared gradient of the log-likelihood of this client's samples, at the model that is handed on."""
