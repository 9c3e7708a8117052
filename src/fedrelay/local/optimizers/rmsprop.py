"""RMSprop: gradients divided by the root of a running mean of their squares.

Source: T. Tieleman, G. Hinton. Lecture 6.5, Neural Networks for Machine Learning. Coursera 2012.

Rule: v ← αv + (1 − α)g², θ ← θ − ηg/(√v + ε). Weight decay λ adds λθ to the gradient g.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.optimizers.base import ElementwiseOptimizer, LearningRate, State, StateTensor, descend


class RmsProp(ElementwiseOptimizer):
    """θ ← θ − ηg/(√v + ε)."""

    alpha: float = Field(0.99, ge=0, lt=1, description="memory of the running mean of squares")
    eps: float = Field(1e-8, gt=0, description="ε, which bounds the steps of weights with small gradients")

    def state_tensors(self, train: TrainSettings) -> tuple[StateTensor, ...]:
        return (StateTensor(name="square"),)

    def update(self, theta: Tensor, gradient: Tensor, state: State, lr: LearningRate, train: TrainSettings) -> None:
        if train.weight_decay:
            gradient.add_(theta, alpha=train.weight_decay)
        square = state["square"].mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        descend(theta, gradient.div_(square.sqrt().add_(self.eps)), lr)
