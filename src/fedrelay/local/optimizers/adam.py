"""Adam and AdamW: steps of about the same length for every weight.

Papers: D. P. Kingma, J. Ba. Adam: A Method for Stochastic Optimization. ICLR 2015. I. Loshchilov, F. Hutter. Decoupled
Weight Decay Regularization. ICLR 2019.

Rule: θ ← θ − ηm/(√v + ε), where m and v are running means of the gradient and of its square. In step t, a running mean
moves by the share (1 − β)/(1 − βᵗ) towards the new value: the first steps are plain means, later ones forget at the
rate β. This is the papers' rule with its bias correction built in. Weight decay λ adds λθ to the gradient in Adam; in
AdamW it shrinks the weights by 1 − ηλ before the step.

Deviations: none. Unbiased means and their number of steps can be averaged over models; the papers' sums could not.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.optimizers.base import ElementwiseOptimizer, LearningRate, State, StateTensor, descend

Beta = Annotated[float, Field(ge=0, lt=1)]


class Adam(ElementwiseOptimizer):
    """θ ← θ − ηm/(√v + ε)."""

    betas: tuple[Beta, Beta] = Field((0.9, 0.999), description="memory of the running means of gradients and squares")
    eps: float = Field(1e-8, gt=0, description="ε, which bounds the steps of weights with small gradients")

    def state_tensors(self, train: TrainSettings) -> tuple[StateTensor, ...]:
        return StateTensor(name="mean"), StateTensor(name="square"), StateTensor(name="steps", scalar=True)

    def update(self, theta: Tensor, gradient: Tensor, state: State, lr: LearningRate, train: TrainSettings) -> None:
        if train.weight_decay:
            self.decay(theta, gradient, lr, train.weight_decay)
        mean, square, steps = state["mean"], state["square"], state["steps"].add_(1)
        of_gradient, of_square = shares_of_new(self.betas, steps)
        mean.lerp_(gradient, of_gradient)
        square.lerp_(gradient.square_(), of_square)
        descend(theta, mean / square.sqrt().add_(self.eps), lr)

    def decay(self, theta: Tensor, gradient: Tensor, lr: LearningRate, strength: float) -> None:
        """Apply weight decay, in place."""
        gradient.add_(theta, alpha=strength)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient."""

    def decay(self, theta: Tensor, gradient: Tensor, lr: LearningRate, strength: float) -> None:
        theta.mul_(1 - lr * strength)


def shares_of_new(betas: tuple[float, float], steps: Tensor) -> tuple[Tensor, Tensor]:
    """For each β, the share of the newest value in a running mean after so many values: (1 − β)/(1 − βᵗ)."""
    logs, numerators = _constants(betas, steps.dtype, steps.device)
    shares = numerators / torch.expm1(steps * logs)  # expm1 is exact where βᵗ is close to 1
    return shares[..., :1], shares[..., 1:]


@lru_cache(maxsize=8)
def _constants(betas: tuple[float, float], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """ln β and β − 1 as tensors: an operation with a Python number takes several times as long."""
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    return torch.tensor(logs, dtype=dtype, device=device), torch.tensor(
        [beta - 1 for beta in betas], dtype=dtype, device=device
    )
