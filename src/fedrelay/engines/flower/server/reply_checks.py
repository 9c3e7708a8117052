"""Checks of a reply to a hop request. A node may be mistaken about its own model, or lie."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from fedrelay.engines.flower.messages import (
    BadMessage,
    Message,
    ModelEncoding,
    hop_report,
    int_field,
    scalar_names,
    unpack_models,
)
from fedrelay.engines.local.executor import one_thread
from fedrelay.local.hop_runner import apply_guard
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatModule
from fedrelay.robustness.guard import TypicalHop, clip_updates, max_abs_weights
from fedrelay.routes.arrival import HopReport
from fedrelay.routes.plan import Hop

ROUNDING = 1e-4
"""Relative tolerance for the norm of an update that the node has shortened."""


class ReplyChecker:
    """Parses replies to hop requests and applies the guard to them."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job

    def check(
        self, hop: Hop, recv: Tensor, typical: TypicalHop, id: int, message: Message, took: float
    ) -> tuple[HopReport, Tensor, dict[str, Tensor]]:
        """Parse a reply and apply the guard.

        Args:
            hop: The hop that the node was asked for.
            recv: The model that was sent to the node.
            typical: The medians of the last round.
            id: The id of the request.
            message: The reply.
            took: Seconds between request and reply.

        Returns:
            The report of the hop, and the model and its payload, which may be used if the report refuses nothing.
        """
        if int_field(message.header, "request") != id:
            raise BadMessage("it answers another request")
        layout, model, payload = self.job.layout, recv, dict[str, Tensor]()
        samples, steps = self.expected_work(hop)
        report, worked = hop_report(message, samples, steps, took)
        report = replace(report, overhead_seconds=max(0.0, took - worked))
        if not report.refused:
            names = self.job.tensor_names(Payload)
            wanted = ["model", *(f"payload {name}" for name in names)]
            encoding = ModelEncoding.of_reply(self.job.codec, recv)
            models = unpack_models(message, layout, wanted, scalar_names(self.job), encoding)
            model, payload = models["model"], {name: models[f"payload {name}"] for name in names}
            largest, lr = max_abs_weights(model[: layout.float_size])[0], self.job.learning_rate(hop)
            report = replace(report, max_abs_weight=largest, lr=lr)
            report = self._clip(report, model, recv, typical.update_norm)
        with one_thread():
            report = apply_guard(self.job, self.module, hop, model, recv, {"payload": payload}, report, typical)
        return report, model, payload

    def expected_work(self, hop: Hop) -> tuple[int, int]:
        """The samples of a client, and the steps of a hop on them: a node cannot claim others."""
        samples = self.job.federation.sample_count(hop.client)
        return samples, self.job.steps_with(samples)

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
        return FlatModule(self.job.module, self.job.layout, precision=self.job.train.precision)
