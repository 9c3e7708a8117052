"""SCAFFOLD: control variates correct the drift of clients.

Paper: S. P. Karimireddy, S. Kale, M. Mohri, S. J. Reddi, S. U. Stich, A. T. Suresh. SCAFFOLD: Stochastic Controlled
Averaging for Federated Learning. ICML 2020.

Rule: option II of the paper. The gradient gains c − c_k. After τ steps with learning rate η, the client's new control
variate is c_k⁺ = c_k − c + (recv − θ)/(τη). At a merge, the server's c gains Σ (c_k⁺ − c_k)/K over the clients that
were visited, where K is the number of all clients. So c is the mean of all c_k after every merge.

A client takes over its new control variate at the merge: all its hops between two merges train with the same c_k. In
the paper every client is visited once between merges; on rotations, loops and slots it is visited more often, and each
hop gives another c_k⁺. The client takes over that of its last hop (`commit: last`; where routes meet, that of the
highest number comes last), or the mean over its hops (`commit: mean`). A c_k that changed at every hop, while c stands
still, would make the corrections of a rotation add up instead of cancelling.

Deviations: in chains every hop counts: what each hop adds to its client's change c_k⁺ − c_k is summed on the way and
comes back with the model. c is sent to the first client and on to the next ones; the sum is passed on and sent back.
This doubles the bytes from and to the server and triples those between clients. The merge is the mean weighted by
samples unless another one is named; the paper's is uniform (`merge.weights: uniform`) with a server learning rate of 1.
With momentum or weight decay, (recv − θ)/(τη) is not the mean gradient, so c_k is biased. Other optimisers than SGD are
refused: the length of their steps says little about the gradient. If several routes reach a client in the same step,
they take turns, in the order of their numbers.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import MergedRound, Term, TermResult
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState, TermTensor


class ControlVariates(Term):
    """The gradient c − c_k."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (
        ClientState("control"),
        ClientState("control-change", until_merge=True, added_at_merge_to="control"),
        ClientState("control-hops", scalar=True, until_merge=True),
        ServerState("control"),
        Payload("control-change", adds_up=True),
    )
    payload_reveals_data: ClassVar[bool] = True
    commit: Literal["last", "mean"] = Field(
        "last",
        description="what a client with several hops between two merges takes over at the merge: the control variate "
        "of its last hop, or the mean over its hops",
    )

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
        theta, before = outcome.trained, context.client_state["control-change"]
        distance = torch.as_tensor(outcome.steps * outcome.lr, dtype=theta.dtype, device=theta.device)
        trained = distance > 0
        added = (context.received - theta) / distance - context.server_state["control"] - before
        if self.commit == "mean":
            added = added / context.new_client_state["control-hops"].add_(trained)
        added = torch.where(trained, added, 0.0)
        context.new_client_state["control-change"].add_(added)
        context.payload["control-change"].add_(added)

    def after_merge(self, round: MergedRound) -> TermResult:
        total = round.arrivals[0].payload["control-change"].clone()
        for arrival in round.arrivals[1:]:
            total.add_(arrival.payload["control-change"])
        mean = total / round.clients
        known = round.server_state
        return TermResult({"control": known["control"] + mean if "control" in known else mean})
