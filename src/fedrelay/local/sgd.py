"""Stochastic gradient descent on flat tensors: clipping, weight decay, momentum, step."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrelay.experiment.spec import TrainSettings

LearningRate = float | Tensor
"""One number, or one for each lane of batched models: `[lanes, 1]`."""


class Sgd:
    """The optimiser of one hop, for one model `[size]` or several batched models `[lanes, size]`."""

    def __init__(self, train: TrainSettings, lr: LearningRate, start: Tensor) -> None:
        self.train, self.lr = train, lr
        self.velocity = torch.zeros_like(start) if train.momentum else None

    def step(self, theta: Tensor, gradient: Tensor) -> None:
        """Update `theta` (or its first lanes) in place. `gradient` is overwritten."""
        train = self.train
        if train.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
            gradient.mul_((train.clip / norm).clamp(max=1.0))
        if train.weight_decay:
            gradient.add_(theta, alpha=train.weight_decay)
        if self.velocity is not None:
            velocity = self.velocity[: len(theta)]
            gradient = velocity.mul_(train.momentum).add_(gradient)
        if isinstance(self.lr, Tensor):
            theta.addcmul_(gradient, self.lr[: len(theta)], value=-1)
        else:
            theta.add_(gradient, alpha=-self.lr)
