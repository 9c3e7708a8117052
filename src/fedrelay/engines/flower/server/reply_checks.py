"""The gate: what is looked at before an answer of a node is let in, by the server's own means."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedrelay.engines.flower.messages import BadMessage, Message, report_of, unpacked, whole
from fedrelay.engines.local.executor import one_thread
from fedrelay.local.arrival import HopReport
from fedrelay.local.hop import diverged
from fedrelay.local.hop_context import HopContext
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatModule
from fedrelay.robustness.guard import TypicalHop, emptied, fault_in, peaks, shorten, worsened
from fedrelay.routes.plan import Hop

ROUNDING = 1e-4
"""By so much an update may seem too long that was shortened elsewhere."""


@dataclass(frozen=True)
class HopReply:
    """A good answer: what the client made of the model, not yet looked at by the guard."""

    model: Tensor
    payload: dict[str, Tensor]
    report: HopReport


class ReplyChecker:
    """Checks answers to turns."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job

    def opened(self, answer: Message, number: int, samples: int) -> tuple[HopReply, float]:
        """What an answer to the turn of this number holds, with the node's own seconds."""
        if whole(answer.header, "turn") != number:
            raise BadMessage("another turn's answer")
        report, seconds = report_of(answer, samples)
        if report.refused:
            return HopReply(torch.empty(0), {}, report), seconds
        names = {f"payload {name}": name for name in self.job.names("payload")}
        models = unpacked(answer, self.job.layout, ["model", *names])
        return HopReply(models["model"], {name: models[row] for row, name in names.items()}, report), seconds

    def guarded(self, hop: Hop, recv: Tensor, found: HopReply, usual: TypicalHop) -> HopReply:
        """A node may be mistaken about its own model, or lie; `recv` is what it was sent."""
        guard, layout, report = self.job.guard, self.job.layout, found.report
        if not report.refused:
            [peak] = peaks(found.model[: layout.counters])
            report = replace(report, peak=peak, refused=fault_in(guard, peak, found.payload.values()))
        if report.refused and guard.on_divergence == "stop":
            raise diverged(hop, report.refused)
        if not report.refused:
            report = self._measured(report, found.model, recv, usual.length)
            report = replace(report, refused=emptied(guard, report.peak, recv[: layout.counters]))
        if not report.refused:
            report = self._judged(report, found.model, recv, usual)
        if report.refused:
            report = HopReport(0, 0, 0.0, refused=report.refused, overhead=report.overhead, rise=report.rise)
        return replace(found, report=report)

    def _measured(self, report: HopReport, model: Tensor, recv: Tensor, usual: float) -> HopReport:
        """An honest node shortens its own update; that of one that does not is shortened here."""
        if self.job.guard.norm is None:
            return report
        end, longest = self.job.layout.trainable, self.job.guard.norm * usual
        allowed = torch.tensor([longest * (1 + ROUNDING)], dtype=model.dtype)
        length = float(shorten(model[:end], HopContext(recv[:end], recv[:end], longest=allowed)))
        if length > float(allowed):
            return replace(report, length=length, shortened=True)
        return report if report.shortened else replace(report, length=length)

    def _judged(self, report: HopReport, model: Tensor, recv: Tensor, usual: TypicalHop) -> HopReport:
        with one_thread():
            reason, rise = worsened(self.job.guard, self.bench, model, recv, self.job.federation, usual)
        return replace(report, refused=reason, rise=rise)

    @cached_property
    def bench(self) -> FlatModule:
        """Where models are looked at."""
        return FlatModule(copy.deepcopy(self.job.module), self.job.layout)
