"""Checks of a reply to a hop request. A node may be mistaken about its own model, or lie."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedrelay.engines.flower.messages import BadMessage, Message, hop_report, int_field, unpack_models
from fedrelay.engines.local.executor import one_thread
from fedrelay.local.arrival import HopReport
from fedrelay.local.hop import diverged
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatModule
from fedrelay.robustness.guard import (
    TypicalHop,
    check_not_zeroed,
    check_public_loss,
    check_weights,
    clip_updates,
    max_abs_weights,
)
from fedrelay.routes.plan import Hop

ROUNDING = 1e-4
"""Relative tolerance for the norm of an update that the node has shortened."""


@dataclass(frozen=True)
class HopReply:
    """What a client made of the model."""

    model: Tensor
    payload: dict[str, Tensor]
    report: HopReport


class ReplyChecker:
    """Parses replies to hop requests and applies the guard to them."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job

    def parse(self, reply: Message, id: int, samples: int) -> tuple[HopReply, float]:
        """The content of the reply to request `id`, and the seconds the node worked; `samples` is what it holds."""
        if int_field(reply.header, "request") != id:
            raise BadMessage("it answers another request")
        report, seconds = hop_report(reply, samples)
        if report.refused:
            return HopReply(torch.empty(0), {}, report), seconds
        names = {f"payload {name}": name for name in self.job.tensor_names(Payload)}
        models = unpack_models(reply, self.job.layout, ["model", *names])
        return HopReply(models["model"], {name: models[row] for row, name in names.items()}, report), seconds

    def check(self, hop: Hop, recv: Tensor, reply: HopReply, typical: TypicalHop) -> HopReply:
        """Apply the guard; `recv` is the model that was sent to the node."""
        guard, layout, report = self.job.guard, self.job.layout, reply.report
        if not report.refused:
            [largest] = max_abs_weights(reply.model[: layout.float_size])
            refused = check_weights(guard, largest, reply.payload.values())
            report = replace(report, max_abs_weight=largest, refused=refused)
        if report.refused and guard.on_divergence == "stop":
            raise diverged(hop, report.refused)
        if not report.refused:
            report = self._clip(report, reply.model, recv, typical.update_norm)
            report = replace(report, refused=check_not_zeroed(guard, report.max_abs_weight, recv[: layout.float_size]))
        if not report.refused:
            with one_thread():
                reason, increase = check_public_loss(
                    guard, self.module, reply.model, recv, self.job.federation, typical
                )
            report = replace(report, refused=reason, public_loss_increase=increase)
        if report.refused:
            report = replace(
                HopReport(0, 0, 0.0, refused=report.refused),
                overhead_seconds=report.overhead_seconds,
                public_loss_increase=report.public_loss_increase,
            )
        return replace(reply, report=report)

    def _clip(self, report: HopReport, model: Tensor, recv: Tensor, typical: float) -> HopReport:
        """An honest node has clipped its update; for others the server does it."""
        if self.job.guard.norm is None:
            return report
        end = self.job.layout.trained_size
        allowed = torch.tensor([self.job.guard.norm * typical * (1 + ROUNDING)], dtype=model.dtype)
        norm = float(clip_updates(model[:end], recv[:end], allowed))
        if norm > float(allowed):
            return replace(report, update_norm=norm, update_clipped=True)
        return report if report.update_clipped else replace(report, update_norm=norm)

    @cached_property
    def module(self) -> FlatModule:
        """A module of the server's own, to evaluate models with."""
        return FlatModule(copy.deepcopy(self.job.module), self.job.layout)
