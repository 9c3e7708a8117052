"""GHBM: clients are pushed on in the direction in which the global model moved over the last τ rounds.

Paper: R. Zaccone, S. P. Karimireddy, C. Masone, M. Ciccone. Communication-Efficient Heterogeneous Federated Learning
with Generalized Heavy-Ball Momentum. TMLR 2025.

Rule: the server keeps the last τ models and sends m = (w_t − w_{t−τ})/τ beside the model; before τ merges m is 0. Every
local step is θ ← θ − η(g − βm/(ηJ)), where J is the number of steps of the hop, so that the hop as a whole is moved by
βm. With τ = 1 this is classical momentum that clients apply. The paper sets τ to the rounds in which all clients take
part once on average, 1/C.

Deviations: on a chain of n clients each hop is moved by βm/n, so that the route as a whole is moved by βm. The
communication-efficient variants of the paper (LocalGHBM, FedHBM), in which clients compute m from models that they
keep, are left out. The ledger counts m as one more transfer from the server, and from client to client.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import MergedRound, Term, TermResult
from fedrelay.local.terms.tensor_declarations import ServerState, TermTensor


class HeavyBall(Term):
    """The gradient −βm/(ηJ)."""

    tensors: ClassVar[tuple[TermTensor, ...]] = (ServerState("movement"),)
    beta: float = Field(0.9, ge=0, description="β, how much of the movement each route is pushed on by")
    tau: int = Field(
        5, ge=1, description="τ, number of merges over which the movement is measured; in the paper 1/fraction"
    )

    def check_train_settings(self, train: TrainSettings) -> None:
        if train.optimizer != "sgd" or train.momentum:
            raise SpecError("terms.heavy-ball: pushes steps of plain sgd; set train.optimizer=sgd and train.momentum=0")

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: HopContext) -> None:
        gradient.sub_(context.server_state["movement"] * (self.beta / context.route_lr_sum))

    def after_merge(self, round: MergedRound) -> TermResult:
        last = round.before[None]
        models = torch.cat([round.state["models"], last])[-self.tau :] if round.state else last.clone()
        complete = len(models) == self.tau
        return TermResult({"movement": (round.merged - models[0]) / self.tau} if complete else {}, {"models": models})
