"""Stochastic gradient descent, with the momentum of `train.momentum`.

Rule: v ← ρv + g, θ ← θ − ηv. Weight decay λ adds λθ to the gradient g.
"""

from __future__ import annotations

from torch import Tensor

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.optimizers.base import ElementwiseOptimizer, LearningRate, State, StateTensor, descend


class Sgd(ElementwiseOptimizer):
    """θ ← θ − ηv."""

    def is_plain_descent(self, train: TrainSettings) -> bool:
        return not (train.momentum or train.weight_decay or train.clip)

    def state_tensors(self, train: TrainSettings) -> tuple[StateTensor, ...]:
        return (StateTensor(name="velocity"),) if train.momentum else ()

    def update(self, theta: Tensor, gradient: Tensor, state: State, lr: LearningRate, train: TrainSettings) -> None:
        if train.weight_decay:
            gradient.add_(theta, alpha=train.weight_decay)
        if train.momentum:
            gradient = state["velocity"].mul_(train.momentum).add_(gradient)
        descend(theta, gradient, lr)
