"""Differential privacy: a client bounds its change to the model and adds noise before it sends the model.

Paper: H. B. McMahan, D. Ramage, K. Talwar, L. Zhang. Learning Differentially Private Recurrent Language Models. ICLR
2018. Accounting: I. Mironov. Rényi Differential Privacy. CSF 2017.

Rule: after training and all other terms, Δ = θ − recv is scaled to a norm of at most C (`clip`), and every coordinate
gets Gaussian noise of standard deviation z·C (`noise`), so θ ← recv + Δ·min(1, C/‖Δ‖) + N(0, z²C²). The server and the
other clients see nothing else of the client's data. One hop is one Gaussian mechanism on all of a client's samples; a
client's (ε, δ) is the composition of all its hops, by Rényi divergences. With a budget (`epsilon`), a client whose next
hop would exceed it is skipped.

Deviations: every client adds noise, not the server, which sees each model anyway and passes it on. That is more noise
for the same ε. No amplification by sampling is claimed, because the order of clients comes from a seed that everybody
knows. Neighbouring federations differ in the samples of one client, present or not (Δ or nothing). Models with buffers,
such as BatchNorm statistics, are refused: these would leave the client without noise. Not covered: the numbers of
samples and steps and the losses that clients report, and what they send for forming groups. In a simulation the noise
comes from the run's seed, so that a run can be repeated; anyone who knows the seed can subtract it. Real nodes draw
fresh noise from the operating system for every reply.
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

MIN_NOISE = 0.001
"""Less noise protects nobody: ε of a single hop would exceed 500,000."""


class ClientLevelPrivacy(Term):
    """The model recv + Δ·min(1, C/‖Δ‖) + N(0, z²C²)."""

    in_warmup: ClassVar[bool] = True
    clip: float = Field(1.0, gt=0, description="C, the largest norm of a client's change")
    noise: float = Field(1.0, ge=0, le=1e6, description="z, standard deviation of the noise in units of the clip")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ, well below one in the number of clients")
    epsilon: float | None = Field(
        None, gt=0, le=1e6, description="budget of every client; a client whose next hop would exceed it is skipped"
    )

    @model_validator(mode="after")
    def _check_noise(self) -> Self:
        if 0 < self.noise < MIN_NOISE:
            raise ValueError(f"noise: must be 0 or at least {MIN_NOISE}, got {self.noise}")
        if self.epsilon is not None and not self.noise:
            raise ValueError("epsilon: a budget needs noise; set noise above 0 or leave out epsilon")
        return self

    @property
    def accountant(self) -> Accountant:
        return Accountant(self.noise, self.delta)

    @property
    def max_hops(self) -> int | None:
        """The number of hops that a client's budget allows; None without a budget."""
        return None if self.epsilon is None else self.accountant.max_hops(self.epsilon)

    def check_model(self, module: nn.Module) -> None:
        parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        if buffers := [name for name in module.state_dict() if name not in parameters]:
            raise SpecError(
                f"terms.dp: the model's buffer {buffers[0]!r} would leave clients without noise; "
                "use a model without BatchNorm and other buffers"
            )

    def adjust_sent_model(self, theta: Tensor, context: HopContext, noise: Noise) -> None:
        change = theta - context.received
        norm = torch.linalg.vector_norm(change, dim=-1, keepdim=True, dtype=torch.float64)
        scale = (self.clip / norm.clamp(min=self.clip)).to(theta.dtype)
        theta.copy_(context.received + change * scale)
        if self.noise:
            theta.add_(noise("dp"), alpha=self.noise * self.clip)
