"""FedAvgM: momentum at the server.

Paper: T.-M. H. Hsu, H. Qi, M. Brown. Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification. arXiv 1909.06335, 2019.

Rule: v ← βv + Δ, w ← w + ηv with Δ = Σ pᵢ θᵢ − w. The other convention, v ← βv + (1 − β)Δ, is an option
(`velocity: average`). Its steps have the size of Δ, while the paper's grow to Δ/(1 − β).

Deviations: none. Buffers take the plain mean.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedrelay.merge.server_optimizer_base import MergeState, ServerOptimizerBase, stored


class ServerMomentum(ServerOptimizerBase):
    """A step along the velocity."""

    lr: float = Field(1.0, gt=0, description="server learning rate η")
    beta: float = Field(0.9, ge=0, lt=1, description="share of the velocity that is kept")
    velocity: Literal["sum", "average"] = Field("sum", description="changes add up, or are averaged")

    def step_and_state(self, change: Tensor, state: MergeState) -> tuple[Tensor, MergeState]:
        gain = 1.0 if self.velocity == "sum" else 1 - self.beta
        velocity = self.beta * stored(state, "velocity", change) + gain * change
        return self.lr * velocity, {"velocity": velocity}
