"""FedDyn: clients record their drift, and a dynamic penalty brings their optima together.

Paper: D. A. E. Acar, Y. Zhao, R. M. Navarro, M. Mattina, P. N. Whatmough, V. Saligrama. Federated Learning Based on
Dynamic Regularization. ICLR 2021. With the control variates of `control`, this is FedDC: L. Gao et al. FedDC: Federated
Learning with Non-IID Data via Local Drift Decoupling and Correction. CVPR 2022.

Rule: the client's drift d_k is the sum of θ_out − a over all its hops, where a is the anchor. The gradient gains
α(θ − a + d_k). The paper's g_k is −α·d_k, the server's h is −α times the mean drift (see the merge `drift`).

Deviations: the anchor is the model received from the predecessor, so that the drifts along a chain add up to the change
made by the chain. α is the same for all clients; the authors' code divides it by n_k·K/n, the client's size relative to
the mean (`alpha_by_size`), so that clients agree on the optimum over all samples instead of over all clients.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import AnchoredTerm
from fedrelay.local.terms.tensor_declarations import ClientState, TermTensor


class DriftPenalty(AnchoredTerm):
    """The gradient α(θ − a + d_k)."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (ClientState("drift"),)
    alpha: float = Field(0.1, gt=0, description="strength of the penalty")
    alpha_by_size: bool = Field(False, description="divide the strength by the client's size relative to the mean")

    def pull_to_anchor(self, relative_size: float) -> float:
        return self.alpha / relative_size if self.alpha_by_size else self.alpha

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: HopContext) -> None:
        penalty = theta - self.anchor_model(context) + context.client_state["drift"]
        gradient.add_(penalty.div_(context.relative_size) if self.alpha_by_size else penalty, alpha=self.alpha)

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        context.new_client_state["drift"].add_(outcome.sent - self.anchor_model(context))
