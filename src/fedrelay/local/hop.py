"""A client's turn from beginning to end, the same on every engine: train, look at the result, accept or refuse it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedrelay.errors import DivergedError, EngineError, FedRelayError
from fedrelay.local.arrival import HopReport
from fedrelay.local.batched_trainer import trainer_for
from fedrelay.local.evaluation import accuracy
from fedrelay.local.hop_context import HopContext
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.layout import FlatModule
from fedrelay.robustness.guard import NO_HOPS_YET, HopSnapshot, TypicalHop, emptied, fault_in, peaks, shorten, worsened
from fedrelay.robustness.tampering import tamper
from fedrelay.routes.overlay import ExecutionOverlay, Tamper
from fedrelay.routes.plan import Hop, RoundPlan

WRONG_SHAPE = "a wrong shape"


@dataclass(frozen=True)
class PlannedHop:
    """One hop and what is special about it."""

    hop: Hop
    visited: tuple[int, ...] = ()
    """On a route that is followed: the clients so far, this one included."""

    tamper: Tamper | None = None


def planned_hop(plan: RoundPlan, overlay: ExecutionOverlay, hop: Hop) -> PlannedHop:
    """A hop of a plan with what is special about it in this attempt."""
    visited = plan.routes[hop.route].clients[: hop.index + 1] if hop.route in overlay.followed else ()
    return PlannedHop(hop, visited, overlay.tamper_at(hop.route, hop.index))


class HopRunner:
    """What one process needs to take turns: its own copy of the module, and somebody who trains it."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.bench = FlatModule(copy.deepcopy(job.module), job.layout, job.train.device)
        self.trainer = trainer_for(job, self.bench)

    def take(
        self,
        turns: Sequence[PlannedHop],
        visits: Sequence[HopContext],
        out: Sequence[Tensor],
        usual: TypicalHop = NO_HOPS_YET,
    ) -> list[HopReport]:
        """Take turns side by side, each model to its place in `out`; `usual` is what turns are like."""
        if self.job.attends:
            visits = [self._told(turn.hop, visit, usual.length) for turn, visit in zip(turns, visits, strict=True)]
        careful = self.job.guard.refuses or any(turn.tamper for turn in turns)
        before = [HopSnapshot.of(visit) if careful else None for visit in visits]
        hops = [turn.hop for turn in turns]
        try:
            reports = self.trainer.train(hops, visits, out)
        except FedRelayError:
            raise
        except Exception as error:
            clients = ", ".join(str(hop.client) for hop in hops)
            raise failure(f"round {hops[0].round}: training on client {clients}", error) from error
        return [self._ended(*turn, usual) for turn in zip(turns, visits, out, before, reports, strict=True)]

    def _told(self, hop: Hop, visit: HopContext, usual: float) -> HopContext:
        """The visit with what terms and guard may ask about the turn."""
        longest = torch.inf if self.job.guard.norm is None else self.job.guard.norm * usual
        size, most = torch.tensor([[self.job.relative_size(hop.client)], [longest]], dtype=visit.recv.dtype)
        return replace(visit, size=size, longest=most)

    def _ended(
        self,
        turn: PlannedHop,
        visit: HopContext,
        model: Tensor,
        before: HopSnapshot | None,
        report: HopReport,
        usual: TypicalHop,
    ) -> HopReport:
        """The report of a turn after everything that comes after training."""
        guard, reason = self.job.guard, ""
        if turn.tamper is not None and before is not None:
            report, reason = self._tampered(turn.tamper, model, replace(visit, recv=before.recv), report)
        reason = reason or fault_in(guard, report.peak, (*visit.kept.values(), *visit.payload.values()))
        if reason and guard.on_divergence == "stop":
            raise diverged(turn.hop, reason)
        if before is not None:
            reason = reason or emptied(guard, report.peak, before.recv[: self.job.layout.counters])
            if not reason:
                reason, rise = worsened(guard, self.bench, model, before.recv, self.job.federation, usual)
                report = replace(report, rise=rise)
            if reason:
                before.restore(visit, model)
                report = HopReport(0, 0, 0.0, refused=reason, rise=report.rise)
        return replace(report, recall=self._recall(model, turn.visited)) if turn.visited else report

    def _tampered(self, how: Tamper, model: Tensor, visit: HopContext, report: HopReport) -> tuple[HopReport, str]:
        """The report of a model that was tampered with, and what is wrong with it at once.

        An honest client shortens its own update; of one that does not, whoever gets the model does, after a look at it
        as it came: a shortened step towards nothing is no longer nothing.
        """
        if how.what == "shape":
            return report, WRONG_SHAPE
        floats, trained = self.job.layout.counters, self.job.layout.trainable
        tamper(model[:floats], visit.recv[:floats], how)
        report = replace(report, peak=peaks(model[:floats])[0])
        if self.job.guard.norm is not None:
            length = float(shorten(model[:trained], replace(visit, recv=visit.recv[:trained])))
            report = replace(report, length=length, shortened=length > float(visit.longest))
        return report, ""

    def _recall(self, model: Tensor, clients: Iterable[int]) -> tuple[float, ...]:
        """What a model knows of the clients it has visited."""
        return tuple(accuracy(self.bench, model, self.job.federation.samples(client)) for client in clients)


def diverged(hop: Hop, reason: str) -> DivergedError:
    """The end of a run that is not told to go on without the hop."""
    return DivergedError(
        f"round {hop.round}: the model left client {hop.client} (route {hop.route}, hop {hop.index}) with "
        f"{reason}; lower train.lr, set train.clip, or go on without such hops with guard.on_divergence=skip"
    )


def failure(doing: str, error: Exception) -> EngineError:
    """Something nobody foresaw, such as a failure of a user's own module."""
    return EngineError(f"{doing} failed: {type(error).__name__}: {error}")
