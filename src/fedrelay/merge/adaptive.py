"""FedAdagrad, FedAdam and FedYogi: server learning rates that adapt to each parameter.

Paper: S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konečný, S. Kumar, H. B. McMahan. Adaptive Federated
Optimization. ICLR 2021.

Rule: with Δ = Σ pᵢ θᵢ − w, w ← w + η m/(√v + ε), where m ← β₁m + (1 − β₁)Δ and

    FedAdagrad   v ← v + Δ², and m = Δ
    FedAdam      v ← β₂v + (1 − β₂)Δ²
    FedYogi      v ← v − (1 − β₂)Δ² sign(v − Δ²)

Initially m is 0, and v is ε² (the paper allows any value from there on) or `first_v`.

Deviations: the mean is weighted by samples, as in the paper's experiments (`weights: uniform` is its pseudo-code).
There is no bias correction, as in the paper. `correct_bias` adds that of Flower's FedAdam: η is multiplied by
√(1 − β₂^(t+1))/(1 − β₁^(t+1)) at merge t = 1, 2, … (Adam itself uses t instead of t + 1). Flower starts at v = 0.
Buffers take the plain mean.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.merge.server_optimizer_base import MergeState, ServerOptimizerBase, stored


class AdaptiveServerOptimizer(ServerOptimizerBase):
    """What the three optimisers have in common."""

    lr: float = Field(0.1, gt=0, description="server learning rate η")
    epsilon: float = Field(1e-3, gt=0, description="added to √v; the smaller it is, the more the learning rates adapt")
    first_v: float | None = Field(None, ge=0, description="v before the first merge; default epsilon squared")

    def stored_v(self, state: MergeState, change: Tensor) -> Tensor:
        return stored(state, "v", change, self.epsilon**2 if self.first_v is None else self.first_v)


class ServerAdagrad(AdaptiveServerOptimizer):
    """FedAdagrad: server learning rates that only shrink."""

    def step_and_state(self, change: Tensor, state: MergeState) -> tuple[Tensor, MergeState]:
        v = self.stored_v(state, change) + change**2
        return _adaptive_step(change, v, self.lr, self.epsilon), {"v": v}


class ServerAdam(AdaptiveServerOptimizer):
    """FedAdam: server learning rates that follow recent changes."""

    beta1: float = Field(0.9, ge=0, lt=1, description="share of m that is kept")
    beta2: float = Field(0.99, ge=0, le=1, description="share of v that is kept")
    correct_bias: bool = Field(False, description="correct for the zeros that m and v start from, as Flower does")

    def step_and_state(self, change: Tensor, state: MergeState) -> tuple[Tensor, MergeState]:
        m = _moving_average(stored(state, "m", change), change, self.beta1)
        v = _moving_average(self.stored_v(state, change), change**2, self.beta2)
        step = _adaptive_step(m, v, self.lr, self.epsilon)
        if not self.correct_bias:
            return step, {"m": m, "v": v}
        merges = stored(state, "merges", change.new_zeros(())) + 1
        factor = (1 - self.beta2 ** (merges + 1)).sqrt() / (1 - self.beta1 ** (merges + 1))
        return factor * step, {"m": m, "v": v, "merges": merges}


class ServerYogi(AdaptiveServerOptimizer):
    """FedYogi: server learning rates that can grow again, but slowly."""

    beta1: float = Field(0.9, ge=0, lt=1, description="share of m that is kept")
    beta2: float = Field(0.99, ge=0, le=1, description="1 − β₂ scales the change of v")

    def step_and_state(self, change: Tensor, state: MergeState) -> tuple[Tensor, MergeState]:
        m = _moving_average(stored(state, "m", change), change, self.beta1)
        v = self.stored_v(state, change)
        v = v - (1 - self.beta2) * change**2 * torch.sign(v - change**2)
        return _adaptive_step(m, v, self.lr, self.epsilon), {"m": m, "v": v}


def _moving_average(old: Tensor, new: Tensor, beta: float) -> Tensor:
    return beta * old + (1 - beta) * new


def _adaptive_step(direction: Tensor, v: Tensor, lr: float, epsilon: float) -> Tensor:
    return lr * direction / (v.sqrt() + epsilon)
