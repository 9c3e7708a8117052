"""Differential privacy: a client bounds what it changed about the model and adds noise before it hands the model on.

Paper: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang. Learning Differentially Private Recurrent Language Models. ICLR
2018. Accounting: I. Mironov. Rényi Differential Privacy. CSF 2017.

Rule: after training and all other terms, Δ = θ − recv is scaled to a norm of at most C (`clip`), and every coordinate
gets Gaussian noise of standard deviation z·C (`noise`), so θ ← recv + Δ·min(1, C/‖Δ‖) + N(0, z²C²). Whoever gets the
model next, server or client, sees nothing else of the client's data. One visit is one Gaussian mechanism on all of a
client's samples; (ε, δ) of a client is the composition of all its visits, by Rényi divergences. With a budget
(`epsilon`), a client that has no visit left within it is passed over.

Deviations: noise is added by every client instead of the server, which sees each model anyway and passes it on: that is
more noise for the same ε. No amplification by sampling is claimed, because who is visited when is drawn from a seed
that everybody knows. Neighbouring federations differ in the samples of one client, present or not (Δ or nothing).
Models with buffers, such as BatchNorm statistics, are refused: those would leave the client as they are.
Not covered: numbers of samples and steps, losses that clients report, and what they tell for groups to be formed.
In a simulation the noise comes from the run's seed, so that a run can be repeated; anybody who knows the seed can
subtract it. Real nodes draw fresh noise from the operating system for every answer.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import Noise, Term
from fedrelay.privacy.accountant import Accountant

LEAST_NOISE = 0.001
"""Less protects nobody: ε of a single visit would be beyond 500,000."""


class Dp(Term):
    """The model recv + Δ·min(1, C/‖Δ‖) + N(0, z²C²)."""

    in_warmup: ClassVar[bool] = True
    clip: float = Field(1.0, gt=0, description="C, the greatest norm of a client's change")
    noise: float = Field(1.0, ge=0, le=1e6, description="z, standard deviation of the noise in units of the clip")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ, well below one in the number of clients")
    epsilon: float | None = Field(
        None, gt=0, le=1e6, description="budget of every client; one without a visit left within it is passed over"
    )

    @model_validator(mode="after")
    def _noise_is_worth_its_name(self) -> Self:
        if 0 < self.noise < LEAST_NOISE:
            raise ValueError(f"noise: must be 0 or at least {LEAST_NOISE}, got {self.noise}")
        if self.epsilon is not None and not self.noise:
            raise ValueError("epsilon: no budget can be kept without noise")
        return self

    @property
    def accountant(self) -> Accountant:
        """Who knows what a number of visits costs."""
        return Accountant(self.noise, self.delta)

    @property
    def most_visits(self) -> int | None:
        """How often a client can be visited within its budget."""
        return None if self.epsilon is None else self.accountant.most_visits(self.epsilon)

    def adapt(self, module: nn.Module) -> nn.Module:
        """As it is; one that keeps statistics of samples beside its parameters is refused."""
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        if buffers := [name for name in module.state_dict() if name not in parameters]:
            raise SpecError(
                f"terms.dp: the model's buffer {buffers[0]!r} would leave clients without noise; "
                "take a model without BatchNorm and other buffers"
            )
        return module

    def veil(self, theta: Tensor, visit: HopContext, noise: Noise) -> None:
        """Clip the change and add noise."""
        change = theta - visit.recv
        norm = torch.linalg.vector_norm(change, dim=-1, keepdim=True, dtype=torch.float64)
        scale = (self.clip / norm.clamp(min=self.clip)).to(theta.dtype)
        theta.copy_(visit.recv + change * scale)
        if self.noise:
            theta.add_(noise("dp"), alpha=self.noise * self.clip)
