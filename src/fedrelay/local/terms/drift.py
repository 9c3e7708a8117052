"""FedDyn: clients remember how far they drifted, and a dynamic penalty brings their optima together.

Paper: D. A. E. Acar, Y. Zhao, R. M. Navarro, M. Mattina, P. N. Whatmough, V. Saligrama. Federated Learning Based on
Dynamic Regularization. ICLR 2021. With the control variates of `control`, this is FedDC: L. Gao et al. FedDC: Federated
Learning with Non-IID Data via Local Drift Decoupling and Correction. CVPR 2022.

Rule: the client's drift d_k is the sum of θ_out − a over all its turns, a being the anchor. The gradient gains
α(θ − a + d_k). The paper's g_k is −α·d_k, the server's h is −α times the mean drift (see the merge `drift`).

Deviations: the anchor is the model received from the predecessor, so that the drifts along a chain add up to what the
chain did. α is the same for all clients; the authors' code divides it by n_k·K/n, the client's size relative to the
mean (`alpha_by_size`), so that clients meet at the optimum of all samples instead of that of all clients.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext, HopOutcome
from fedrelay.local.terms.base import AnchoredTerm
from fedrelay.local.terms.tensors import ClientState, TermTensor


class Drift(AnchoredTerm):
    """The gradient α(θ − a + d_k)."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (ClientState("drift"),)
    alpha: float = Field(0.1, gt=0, description="strength of the penalty")
    alpha_by_size: bool = Field(False, description="divide the strength by the client's size relative to the mean")

    def add_to(self, gradient: Tensor, theta: Tensor, visit: HopContext) -> None:
        """Pull towards the anchor, moved by what was drifted before."""
        pull = theta - self.anchor_of(visit) + visit.state["drift"]
        gradient.add_(pull.div_(visit.size) if self.alpha_by_size else pull, alpha=self.alpha)

    def remember(self, visit: HopContext, parting: HopOutcome) -> None:
        """Add the way of this turn."""
        visit.kept["drift"].add_(parting.handed_on - self.anchor_of(visit))
