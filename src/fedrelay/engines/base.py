"""The small protocol behind which engines hide."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from fedrelay.data.federation import Federation
from fedrelay.errors import DivergedError
from fedrelay.local.arrival import Arrival, HopReport
from fedrelay.local.judge import Verdict
from fedrelay.local.terms.base import Term
from fedrelay.local.trainer import Loss, Trainer, cross_entropy
from fedrelay.models.layout import Layout
from fedrelay.routes.plan import Hop, RoundPlan
from fedrelay.spec import Train


@dataclass(frozen=True)
class Job:
    """All that an engine must know to carry out hops."""

    module: nn.Module
    layout: Layout
    federation: Federation
    train: Train
    terms: Sequence[Term]
    seed: int
    loss: Loss = cross_entropy

    def trainer(self) -> Trainer:
        """A fresh workbench with its own copy of the module."""
        return Trainer(
            copy.deepcopy(self.module),
            self.layout,
            self.federation,
            self.train,
            self.terms,
            self.seed,
            self.loss,
        )


class Engine(Protocol):
    """Takes hops and yields arrivals."""

    def travel(self, plan: RoundPlan, broadcast: Tensor) -> list[Arrival]:
        """Carry out all routes of a round; arrivals in the order of the plan, valid until the next call."""

    def evaluate(self, weights: Tensor) -> Verdict:
        """Judge a model on the federation's test samples."""

    def close(self) -> None:
        """Let go of processes and memory."""


def check_finite(hop: Hop, report: HopReport) -> None:
    """Stop at the hop where a model diverged, before it spoils anything."""
    if not report.finite:
        raise DivergedError(
            f"round {hop.round}: the model left client {hop.client} (route {hop.route}, hop {hop.index}) with "
            "non-finite weights; lower train.lr or set train.clip"
        )
