"""The base class of all optimisers: how a step follows from a gradient.

A model is one flat tensor, `[size]`, or several batched models, `[lanes, size]`, of which the first lanes stay active.
So an optimiser must be elementwise: it treats every weight by itself and knows nothing of layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fedrelay.experiment.spec import Section, TrainSettings

LearningRate = float | Tensor
"""One number, or one for each lane of batched models: `[lanes, 1]`."""

State = Mapping[str, Tensor]
"""What an optimiser remembers from step to step, by name."""


class StateTensor(Section):
    """One thing that an optimiser remembers; zero before the first step."""

    name: str
    scalar: bool = False
    """Whether it is one number for the whole model, instead of one for each weight."""


class HopOptimizer(Protocol):
    """An optimiser during one hop."""

    @property
    def state(self) -> State:
        """What it remembers after the last step."""

    def step(self, theta: Tensor, gradient: Tensor) -> None:
        """Update `theta`, or its first lanes, in place. `gradient` is overwritten."""

    def snapshot(self) -> Mapping[str, Any]:
        """Everything that the next step depends on besides the weights, as plain data and tensors."""

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""


class Optimizer(Section, ABC):
    """An optimiser. Its fields are its options, `train.optimizer_options`; it keeps nothing in the object itself."""

    batchable: ClassVar[bool] = True
    """Whether it also trains batched models, `[lanes, size]`."""

    def is_plain_descent(self, train: TrainSettings) -> bool:
        """Whether a step is θ ← θ − ηg and nothing else."""
        return False

    @abstractmethod
    def state_tensors(self, train: TrainSettings) -> tuple[StateTensor, ...]:
        """What it remembers from step to step."""

    @abstractmethod
    def start_hop(
        self, train: TrainSettings, lr: LearningRate, theta: Tensor, state: State | None = None
    ) -> HopOptimizer:
        """Begin a hop.

        Args:
            train: Clipping, weight decay and momentum.
            lr: The learning rate of this hop.
            theta: The weights before the first step.
            state: What it remembers from an earlier hop, which it changes in place; None: nothing.
        """


class ElementwiseOptimizer(Optimizer):
    """An optimiser that is a few lines of algebra on whole tensors. A subclass implements `update`."""

    def state_tensors(self, train: TrainSettings) -> tuple[StateTensor, ...]:
        return ()

    def start_hop(
        self, train: TrainSettings, lr: LearningRate, theta: Tensor, state: State | None = None
    ) -> HopOptimizer:
        return _Run(self, train, lr, self._new_state(train, theta) if state is None else state)

    @abstractmethod
    def update(self, theta: Tensor, gradient: Tensor, state: State, lr: LearningRate, train: TrainSettings) -> None:
        """Take one step: change `theta` and `state` in place. `gradient` may be overwritten."""

    def _new_state(self, train: TrainSettings, theta: Tensor) -> State:
        number = theta[..., :1]
        return {each.name: torch.zeros_like(number if each.scalar else theta) for each in self.state_tensors(train)}


class _Run:
    def __init__(self, optimizer: ElementwiseOptimizer, train: TrainSettings, lr: LearningRate, state: State) -> None:
        self.update, self.train, self.lr, self.state = optimizer.update, train, lr, state

    def step(self, theta: Tensor, gradient: Tensor) -> None:
        train, state, lr = self.train, self.state, self.lr
        if train.clip:
            clip_gradient(gradient, train.clip)
        if state:  # the first lanes; for a single model, everything
            state = {name: tensor[: len(theta)] for name, tensor in state.items()}
        if not isinstance(lr, float):
            lr = lr[: len(theta)]
        self.update(theta, gradient, state, lr, train)

    def snapshot(self) -> Mapping[str, Any]:
        return dict(self.state)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        for name, tensor in self.state.items():
            tensor.copy_(snapshot[name])


def clip_gradient(gradient: Tensor, most: float) -> None:
    """Scale the gradient of each model down to a norm of at most `most`, in place."""
    norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
    gradient.mul_((most / norm).clamp(max=1.0))


def descend(theta: Tensor, direction: Tensor, lr: LearningRate) -> None:
    """Move against a direction, in place."""
    if isinstance(lr, float):  # much faster than to ask for a tensor
        theta.add_(direction, alpha=-lr)
    else:
        theta.addcmul_(direction, lr, value=-1)
