"""Stochastic gradient descent on flat tensors: clip, weight decay, momentum, step — each one line."""

from __future__ import annotations

import torch
from torch import Tensor

from fedrelay.spec import Train


class Sgd:
    """The optimiser of one hop; momentum starts at zero and lives on the last axis."""

    def __init__(self, train: Train) -> None:
        self.train = train
        self.velocity: Tensor | None = None

    def step(self, theta: Tensor, gradient: Tensor) -> None:
        """Update `theta` in place; `gradient` is used up."""
        train = self.train
        if train.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
            gradient.mul_((train.clip / norm).clamp(max=1.0).nan_to_num(nan=1.0))
        if train.weight_decay:
            gradient.add_(theta, alpha=train.weight_decay)
        if train.momentum:
            if self.velocity is None:
                self.velocity = gradient.clone()
            else:
                self.velocity.mul_(train.momentum).add_(gradient)
            gradient = self.velocity
        theta.add_(gradient, alpha=-train.lr)
