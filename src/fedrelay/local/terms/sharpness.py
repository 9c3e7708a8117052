"""FedSAM: clients look for flat minima, with gradients at a point uphill of their model.

Papers: Z. Qu, X. Li, R. Duan, Y. Liu, B. Tang, Z. Lu. Generalized Federated Learning via Sharpness Aware Minimization.
ICML 2022, and D. Caldarola, B. Caputo, M. Ciccone. Improving Generalization in Federated Learning by Seeking Flat
Minima. ECCV 2022; SAM itself: P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur. Sharpness-Aware Minimization for
Efficiently Improving Generalization. ICLR 2021.

Rule: every step takes the gradient at θ + ρg/‖g‖ instead of θ. With `uphill: batch`, g is the gradient at θ for the
same batch, so that a step has two gradients. With `uphill: last`, g is the gradient of the step before, at its uphill
point, and a step has one; the first step of a hop is a plain one.

Deviations: `last` is a variant of ours that costs no more than plain training. ASAM's scaling by weights is left out.
BatchNorm statistics and dropout see both passes of a batch. Other terms add their gradients at θ, which do not count in
g; what they add to the loss counts in both. Virtual time counts both gradients. The loss that is reported is that of
the last pass of each step.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedrelay.local.terms.base import Term


class Sharpness(Term):
    """Gradients at θ + ρg/‖g‖."""

    rho: float = Field(0.05, ge=0, description="ρ, distance of the point at which gradients are computed")
    uphill: Literal["batch", "last"] = Field(
        "batch",
        description="the gradient that shows uphill: that of the same batch (two gradients a step), or the last",
    )

    @property
    def gradients_per_step(self) -> int:
        return 2 if self.uphill == "batch" else 1

    def move_before_gradient(self, theta: Tensor, gradient: Tensor) -> None:
        theta.add_(gradient * (self.rho / gradient.norm(dim=-1, keepdim=True).clamp(min=1e-12)))
