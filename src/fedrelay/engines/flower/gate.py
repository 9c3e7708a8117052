"""The gate: what is looked at before an answer of a node is let in, by the server's own means."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedrelay.data.public import PublicFederation
from fedrelay.engines.crew import one_thread
from fedrelay.engines.flower.parcel import BadParcel, Parcel, report_of, unpacked, whole
from fedrelay.local.arrival import HopReport
from fedrelay.local.guard import fault_in, peaks, shorten
from fedrelay.local.judge import mean_loss
from fedrelay.local.trainer import Job
from fedrelay.local.visit import Visit
from fedrelay.local.workshop import WORSE, diverged
from fedrelay.models.layout import Workbench
from fedrelay.routes.plan import Hop

ROUNDING = 1e-4
"""By so much an update may seem too long that was shortened elsewhere."""


@dataclass(frozen=True)
class Return:
    """A good answer: what the client made of the model, not yet looked at by the guard."""

    model: Tensor
    baggage: dict[str, Tensor]
    report: HopReport


class Gate:
    """Checks answers to turns."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def opened(self, answer: Parcel, number: int, samples: int) -> tuple[Return, float]:
        """What an answer to the turn of this number holds, with the node's own seconds."""
        if whole(answer.header, "turn") != number:
            raise BadParcel("another turn's answer")
        report, seconds = report_of(answer, samples)
        if report.refused:
            return Return(torch.empty(0), {}, report), seconds
        names = {f"baggage {name}": name for name in self.job.names("baggage")}
        models = unpacked(answer, self.job.layout, ["model", *names])
        return Return(models["model"], {name: models[row] for row, name in names.items()}, report), seconds

    def guarded(self, hop: Hop, recv: Tensor, found: Return, usual: float) -> Return:
        """A node may be mistaken about its own model, or lie; `recv` is what it was sent."""
        guard, layout, report = self.job.guard, self.job.layout, found.report
        if not report.refused:
            [peak] = peaks(found.model[: layout.counters])
            report = replace(report, peak=peak, refused=fault_in(guard, peak, found.baggage.values()))
        if report.refused and guard.on_divergence == "stop":
            raise diverged(hop, report.refused)
        if not report.refused:
            report = self._measured(report, found.model, recv, usual)
            report = replace(report, refused=self._worsened(found.model, recv))
        if report.refused:
            report = HopReport(0, 0, 0.0, refused=report.refused, overhead=report.overhead)
        return replace(found, report=report)

    def _measured(self, report: HopReport, model: Tensor, recv: Tensor, usual: float) -> HopReport:
        """An honest node shortens its own update; that of one that does not is shortened here."""
        if self.job.guard.norm is None:
            return report
        end, longest = self.job.layout.trainable, self.job.guard.norm * usual
        allowed = torch.tensor([longest * (1 + ROUNDING)], dtype=model.dtype)
        length = float(shorten(model[:end], Visit(recv[:end], recv[:end], longest=allowed)))
        if length > float(allowed):
            return replace(report, length=length, shortened=True)
        return report if report.shortened else replace(report, length=length)

    def _worsened(self, model: Tensor, recv: Tensor) -> str:
        tolerance, federation = self.job.guard.tolerance, self.job.federation
        if tolerance is None:
            return ""
        assert isinstance(federation, PublicFederation)
        with one_thread():
            after, before = (mean_loss(self.bench, each, federation.public) for each in (model, recv))
        return "" if after - before <= tolerance else WORSE

    @cached_property
    def bench(self) -> Workbench:
        """Where models are looked at."""
        return Workbench(copy.deepcopy(self.job.module), self.job.layout)
