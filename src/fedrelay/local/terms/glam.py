"""GLAM: two frozen teachers, the global model and the previous client's, keep a travelling model from forgetting.

Paper: Liang et al. SPFL, where models travel in rotations; GLAM is its local module. NeurIPS 2025.

Rule: the loss gains τ·L_ap + ρ·L_ag. L_ag is the cross-entropy of the student against the soft labels of the round's
model, L_ap half the symmetric Kullback–Leibler divergence between the student and the model it received. Both are means
over the predictions of a batch, at temperature 1.

Deviations: L_ap is added: the minus sign in print would reward disagreement, against the text. τ weighs the previous
model and ρ the global one, as in the equation; the pseudo-code swaps them. On the first hop of a route both teachers
are the same model.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import TASKS_WITH_LOGITS, Batch, LossTerm, OutputGradient


class Glam(LossTerm):
    """The loss τ·L_ap + ρ·L_ag."""

    batchable: ClassVar[bool] = True
    tau: float = Field(0.3, ge=0, description="strength of the previous client's model as a teacher")
    rho: float = Field(1.0, ge=0, description="strength of the round's global model as a teacher")

    @property
    def supported_tasks(self) -> frozenset[str]:
        return TASKS_WITH_LOGITS

    @property
    def needs_round_model(self) -> bool:
        return self.rho > 0

    def loss(self, batch: Batch, context: HopContext) -> Tensor:
        student = log_probabilities(batch, batch.outputs.logits)
        loss = student.new_zeros(student.shape[:-2])
        if self.tau:
            previous = log_probabilities(batch, batch.outputs_of_model(context.received).logits)
            loss = loss + self.tau * batch.mean(symmetric_kl(student, previous))
        if self.rho:
            round_model = log_probabilities(batch, batch.outputs_of_model(context.round_model).logits)
            loss = loss + self.rho * batch.mean(soft_cross_entropy(student, round_model))
        return loss

    def losses_and_gradient(self, batch: Batch, context: HopContext) -> tuple[Tensor, OutputGradient]:
        student = log_probabilities(batch, batch.outputs.logits)
        p = student.exp()
        losses, gradient = torch.zeros_like(student[..., 0]), torch.zeros_like(student)
        if self.tau:
            teacher = log_probabilities(batch, batch.outputs_of_model(context.received).logits)
            ratio, difference = student - teacher, p - teacher.exp()
            of_ratio = (p * ratio).sum(-1, keepdim=True)
            losses.add_((difference * ratio).sum(-1), alpha=0.5 * self.tau)
            gradient.add_(difference.addcmul_(p, ratio - of_ratio), alpha=0.5 * self.tau)
        if self.rho:
            teacher = log_probabilities(batch, batch.outputs_of_model(context.round_model).logits)
            q = teacher.exp()
            losses.sub_((q * student).sum(-1), alpha=self.rho)
            gradient.add_(p - q, alpha=self.rho)
        return batch.mean(losses), OutputGradient(batch.gradient_of_mean(gradient))


def log_probabilities(batch: Batch, logits: Tensor) -> Tensor:
    """One row per prediction."""
    return torch.log_softmax(batch.rows(logits), dim=-1)


def symmetric_kl(student: Tensor, teacher: Tensor) -> Tensor:
    """½KL(P‖Q) + ½KL(Q‖P) for each row of log-probabilities."""
    return 0.5 * ((student.exp() - teacher.exp()) * (student - teacher)).sum(-1)


def soft_cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    """The cross-entropy against the teacher's probabilities, for each row of log-probabilities."""
    return -(teacher.exp() * student).sum(-1)
