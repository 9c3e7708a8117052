"""SCAFFOLD: control variates correct the drift of clients.

Paper: S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning. ICML 2020.

Rule: option II of the paper. The gradient gains c − c_k. After τ steps with learning rate η,
c_k⁺ = c_k − c + (recv − θ)/(τη). The server's c gains Σ (c_k⁺ − c_k)/K over all hops, where K is the number of all
clients. So c is always the mean of all c_k.

Deviations: in chains every hop counts: the changes of all clients of a route are summed on the way and come back with
the model. c is sent to the first client and on to the next ones; the sum is passed on and sent back. This doubles the
bytes from and to the server and triples those between clients. The merge is the mean weighted by samples unless another
one is named; the paper's is uniform (`merge.weights: uniform`) with a server learning rate of 1. With momentum or
weight decay, (recv − θ)/(τη) is not the mean gradient, so c_k is biased. Other optimisers than SGD are refused: the
length of their steps says little about the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState, TermTensor
from fedrelay.routes.arrival import Arrival


class ControlVariates(Term):
    """The gradient c − c_k."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (
        ClientState("control"),
        ServerState("control"),
        Payload("control-change"),
    )
    payload_reveals_data: ClassVar[bool] = True

    def check_train_settings(self, train: TrainSettings) -> None:
        if train.optimizer != "sgd":
            raise SpecError(
                "train.optimizer: control variates (SCAFFOLD, FedDC) follow from the length of SGD steps, which "
                f"{train.optimizer!r} does not take; use sgd"
            )

    def training_warning(self, train: TrainSettings) -> str | None:
        if train.momentum or train.weight_decay:
            return "control variates assume plain SGD steps; train.momentum and train.weight_decay bias them"
        return None

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: HopContext) -> None:
        gradient.add_(context.server_state["control"] - context.client_state["control"])

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        theta = outcome.trained
        distance = torch.as_tensor(outcome.steps * outcome.lr, dtype=theta.dtype, device=theta.device)
        change = (context.received - theta) / distance - context.server_state["control"]
        change = torch.where(distance > 0, change, 0.0)
        context.new_client_state["control"].add_(change)
        context.payload["control-change"].add_(change)

    def update_server_state(
        self, server_state: Mapping[str, Tensor], arrivals: Sequence[Arrival], clients: int
    ) -> Mapping[str, Tensor]:
        total = arrivals[0].payload["control-change"].clone()
        for arrival in arrivals[1:]:
            total.add_(arrival.payload["control-change"])
        mean = total / clients
        control = server_state["control"] + mean if "control" in server_state else mean
        return {**server_state, "control": control}
