"""SCAFFOLD: control variates correct the drift of clients.

Paper: S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning. ICML 2020.

Rule (option II): the gradient gains c − c_k. After τ steps of length η, c_k⁺ = c_k − c + (recv − θ)/(τη). The server's
c gains Σ (c_k⁺ − c_k)/K over all turns, K being the number of all clients. So c is always the mean of all c_k.

Deviations: in chains every turn counts: the changes of all clients of a route are summed on the way and come home with
the model. c goes down and on, that sum on and home: twice the bytes down and up, three times those between clients. The
merge is the mean by samples unless another is named; the paper's is uniform (`merge.weights: uniform`), its server step
size is 1. With momentum or weight decay (recv − θ)/(τη) is not the mean gradient, so c_k is biased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.arrival import Arrival
from fedrelay.local.hop_context import HopContext, HopOutcome
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensors import ClientState, Payload, ServerState, TermTensor


class Control(Term):
    """The gradient c − c_k."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (
        ClientState("control"),
        ServerState("control"),
        Payload("control-change"),
    )
    reveals: ClassVar[bool] = True

    def warning(self, train: TrainSettings) -> str | None:
        """Plain steps are assumed."""
        if train.momentum or train.weight_decay:
            return "control variates are biased by train.momentum and train.weight_decay; plain steps are assumed"
        return None

    def add_to(self, gradient: Tensor, theta: Tensor, visit: HopContext) -> None:
        """Replace the client's own direction by everybody's."""
        gradient.add_(visit.server["control"] - visit.state["control"])

    def remember(self, visit: HopContext, parting: HopOutcome) -> None:
        """Estimate the client's direction anew."""
        theta = parting.trained
        distance = torch.as_tensor(parting.steps * parting.lr, dtype=theta.dtype, device=theta.device)
        change = (visit.recv - theta) / distance - visit.server["control"]
        change = torch.where(distance > 0, change, 0.0)
        visit.kept["control"].add_(change)
        visit.payload["control-change"].add_(change)

    def settle(self, server: Mapping[str, Tensor], arrivals: Sequence[Arrival], clients: int) -> Mapping[str, Tensor]:
        """The mean of all clients' directions."""
        total = sum_of([arrival.payload["control-change"] for arrival in arrivals]) / clients
        return {**server, "control": server["control"] + total if "control" in server else total}


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """A new tensor."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total.add_(tensor)
    return total
