"""FedAdagrad, FedAdam and FedYogi: the server's step size adapts to every parameter.

Paper: S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan. Adaptive Federated
Optimization. ICLR 2021.

Rule: with Δ = Σ pᵢ θᵢ − w, w ← w + η m/(√v + ε), where m ← β₁m + (1 − β₁)Δ and

    FedAdagrad   v ← v + Δ², and m = Δ
    FedAdam      v ← β₂v + (1 − β₂)Δ²
    FedYogi      v ← v − (1 − β₂)Δ² sign(v − Δ²)

m is zero at first, v is ε² (the paper lets it be anything from there on) or what `first_v` says.

Deviations: the mean is by samples, as in the paper's experiments (`weights: uniform` is its pseudo-code). There is no
bias correction, as in the paper; `correct_bias` turns on that of Flower's FedAdam, where η is multiplied by
√(1 − β₂^(t+1))/(1 − β₁^(t+1)) at merge t = 1, 2, … (Adam itself has t instead of t + 1). Flower starts at v = 0.
Buffers take the plain mean.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.server_step import Memory, ServerStep, remembered


class Adaptive(ServerStep):
    """What the three have in common."""

    lr: float = Field(0.1, gt=0, description="the server's step size η")
    epsilon: float = Field(1e-3, gt=0, description="how far the step size adapts: the smaller, the more")
    first_v: float | None = Field(None, ge=0, description="v before the first merge; default epsilon squared")

    def v_in(self, memory: Memory, change: Tensor) -> Tensor:
        """v after the last merge."""
        return remembered(memory, "v", change, self.epsilon**2 if self.first_v is None else self.first_v)


class Adagrad(Adaptive):
    """Step sizes that only shrink."""

    def step(self, change: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """The step, and v."""
        v = self.v_in(memory, change) + change**2
        return adapted(change, v, self.lr, self.epsilon), {"v": v}


class Adam(Adaptive):
    """Step sizes that follow the latest changes."""

    beta1: float = Field(0.9, ge=0, lt=1, description="how much of m stays")
    beta2: float = Field(0.99, ge=0, le=1, description="how much of v stays")
    correct_bias: bool = Field(False, description="make up for the zeros that m and v start with, as Flower does")

    def step(self, change: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """The step, m and v; with bias correction the number of merges, too."""
        m = blend(remembered(memory, "m", change), change, self.beta1)
        v = blend(self.v_in(memory, change), change**2, self.beta2)
        step = adapted(m, v, self.lr, self.epsilon)
        if not self.correct_bias:
            return step, {"m": m, "v": v}
        merges = remembered(memory, "merges", change.new_zeros(())) + 1
        factor = (1 - self.beta2 ** (merges + 1)).sqrt() / (1 - self.beta1 ** (merges + 1))
        return factor * step, {"m": m, "v": v, "merges": merges}


class Yogi(Adaptive):
    """Step sizes that grow slowly again."""

    beta1: float = Field(0.9, ge=0, lt=1, description="how much of m stays")
    beta2: float = Field(0.99, ge=0, le=1, description="how little v changes")

    def step(self, change: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """The step, m and v."""
        m = blend(remembered(memory, "m", change), change, self.beta1)
        v = self.v_in(memory, change)
        v = v - (1 - self.beta2) * change**2 * torch.sign(v - change**2)
        return adapted(m, v, self.lr, self.epsilon), {"m": m, "v": v}


def blend(old: Tensor, new: Tensor, beta: float) -> Tensor:
    """The moving average βa + (1 − β)b."""
    return beta * old + (1 - beta) * new


def adapted(direction: Tensor, v: Tensor, lr: float, epsilon: float) -> Tensor:
    """A step whose size depends on √v."""
    return lr * direction / (v.sqrt() + epsilon)
