"""A client's hop from start to end, the same on every engine: train, check the result, accept or refuse it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedrelay.data.non_finite_samples import refuse_non_finite
from fedrelay.errors import DivergedError, EngineError, FedRelayError, SpecError
from fedrelay.local.batched_trainer import trainer_for
from fedrelay.local.error_feedback import UNSENT
from fedrelay.local.evaluation import headline_score
from fedrelay.local.hop_context import HopContext
from fedrelay.local.hop_watcher import HopWatcher
from fedrelay.local.trainer import TrainingJob, hop_key
from fedrelay.local.untrained_loss_check import refuse_untrained_loss
from fedrelay.models.flat_layout import FlatModule
from fedrelay.rng import generator
from fedrelay.robustness.guard import (
    NO_HOPS_YET,
    HopSnapshot,
    TypicalHop,
    check_not_zeroed,
    check_others,
    check_public_loss,
    check_weights,
    clip_updates,
    max_abs_weights,
)
from fedrelay.robustness.tampering import tamper
from fedrelay.routes.arrival import HopReport
from fedrelay.routes.execution_overlay import ExecutionOverlay, TamperedHop
from fedrelay.routes.plan import Hop, RoundPlan
from fedrelay.transfer.model_codec import ModelCodec
from fedrelay.user_code import errors_in_own_part

WRONG_SHAPE = "a wrong shape"


class HopInstructions(NamedTuple):
    """One hop and what the plan says about it; a tuple, because workers receive one for each of their hops."""

    hop: Hop
    visited: tuple[int, ...] = ()
    """Clients of the route up to and including this one, if its forgetting is measured; else empty."""

    tamper: TamperedHop | None = None


def instructions_for_hop(plan: RoundPlan, overlay: ExecutionOverlay, hop: Hop) -> HopInstructions:
    """A hop with what the plan and the overlay say about it."""
    visited = plan.routes[hop.route].clients[: hop.index + 1] if hop.route in overlay.followed else ()
    return HopInstructions(hop, visited, overlay.tamper_at(hop.route, hop.index))


class HopRunner:
    """Runs hops in one process, with its own copy of the module and its own trainer."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.flat_module = FlatModule(job.module, job.layout, job.train.device, job.train.precision)
        self.trainer = trainer_for(job, self.flat_module)

    def run(
        self,
        instructions: Sequence[HopInstructions],
        contexts: Sequence[HopContext],
        out: Sequence[Tensor],
        typical: TypicalHop = NO_HOPS_YET,
        watcher: HopWatcher | None = None,
    ) -> list[HopReport]:
        """Run hops side by side.

        Args:
            instructions: The hops, and what is asked of each.
            contexts: The context of each hop. `new_client_state` and `payload` are written.
            out: Where the model of each hop is written.
            typical: The medians of the last round, for the guard.
            watcher: Is told of every step of a single hop.
        """
        if self.job.uses_context:
            contexts = [self._complete(each.hop, at, typical) for each, at in zip(instructions, contexts, strict=True)]
        may_be_undone = self.job.guard.refuses or any(each.tamper for each in instructions)
        snapshots = [HopSnapshot.of(context) if may_be_undone else None for context in contexts]
        codec = self.job.codec
        # Copies, because a hop may write its model to the memory of the received one.
        copies = codec is not None and codec.codec.needs_reference
        references = [context.received.clone() if copies else context.received for context in contexts]
        hops = [each.hop for each in instructions]
        with describe_errors(f"round {hops[0].round}: training on client {', '.join(str(hop.client) for hop in hops)}"):
            reports = self.trainer.train_hops(hops, contexts, out, watcher)
        return [
            self._check(*each, reference, typical)
            for each, reference in zip(
                zip(instructions, contexts, out, snapshots, reports, strict=True), references, strict=True
            )
        ]

    def _complete(self, hop: Hop, context: HopContext, typical: TypicalHop) -> HopContext:
        """The context with the numbers that terms and guard may need."""
        norm = self.job.guard.norm
        limit = torch.inf if norm is None else norm * typical.update_norm
        numbers = [[self.job.relative_size(hop.client)], [limit], [self.job.route_lr_sum(hop)]]
        size, limits, lr_sum = torch.tensor(numbers, dtype=context.received.dtype)
        return replace(context, relative_size=size, max_update_norm=limits, route_lr_sum=lr_sum)

    def _check(
        self,
        instructions: HopInstructions,
        context: HopContext,
        model: Tensor,
        snapshot: HopSnapshot | None,
        report: HopReport,
        reference: Tensor,
        typical: TypicalHop,
    ) -> HopReport:
        """Do everything that comes after training; returns the final report."""
        if instructions.tamper is not None and snapshot is not None:
            report = self._tamper(instructions.tamper, model, snapshot.received, context.max_update_norm, report)
        if (codec := self.job.codec) is not None and not report.refused:
            report = self._encode(codec, instructions.hop, context, model, reference, report)
        others = {"client state": context.new_client_state, "payload": context.payload}
        received = snapshot.received if snapshot is not None else None
        hop = instructions.hop
        try:
            report = apply_guard(self.job, self.flat_module, hop, model, received, others, report, typical)
        except DivergedError:
            if instructions.tamper is None:  # then a bad sample or loss may be the cause, which no learning rate mends
                refuse_non_finite(self.job.federation.train_samples(hop.client), f"client {hop.client}")
                refuse_untrained_loss(self.job, self.flat_module, hop)
            raise
        if report.refused and snapshot is not None:
            snapshot.restore(context, model)
        samples = map(self.job.federation.train_samples, instructions.visited)
        found = tuple(headline_score(self.flat_module, model, self.job.task, each) for each in samples)
        return replace(report, accuracy_on_visited=found) if found else report

    def _tamper(
        self, how: TamperedHop, model: Tensor, received: Tensor, max_update_norm: Tensor, report: HopReport
    ) -> HopReport:
        """Tamper with a model; returns its report, which refuses a model with a wrong shape at once.

        An honest client clips its own update. A malicious one does not, so the receiver clips it, after measuring the
        weights as they came: a clipped step towards zero weights is no longer zero.
        """
        if how.what == "shape":
            return replace(report, refused=WRONG_SHAPE)
        floats, trained = self.job.layout.float_size, self.job.layout.trained_size
        tamper(model[:floats], received[:floats], how)
        report = replace(report, max_abs_weight=max_abs_weights(model[:floats])[0])
        if self.job.guard.norm is not None:
            norm = float(clip_updates(model[:trained], received[:trained], max_update_norm))
            report = replace(report, update_norm=norm, update_clipped=norm > float(max_update_norm))
        return report

    def _encode(
        self, codec: ModelCodec, hop: Hop, context: HopContext, model: Tensor, reference: Tensor, report: HopReport
    ) -> HopReport:
        """Replace a model by what its receiver decodes; with error feedback, the client keeps the difference."""
        unsent = context.new_client_state.get(UNSENT)
        if unsent is not None:
            model += unsent
        decoded = codec.round_trip(model, reference, generator(self.job.seed, "transfer", *hop_key(hop)))
        if unsent is not None:
            torch.sub(model, decoded, out=unsent)
        model.copy_(decoded)
        return replace(report, max_abs_weight=max_abs_weights(model[: self.job.layout.float_size])[0])


def apply_guard(
    job: TrainingJob,
    flat_module: FlatModule,
    hop: Hop,
    model: Tensor,
    received: Tensor | None,
    others: Mapping[str, Mapping[str, Tensor]],
    report: HopReport,
    typical: TypicalHop,
) -> HopReport:
    """Check a model after a hop; returns the final report, which says why the model is refused, if it is.

    Args:
        job: The job.
        flat_module: Evaluates models on the public set.
        hop: The hop.
        model: The model after the hop.
        received: The model before the hop; None if the guard refuses no models.
        others: Other tensors that the client sends or keeps, by kind and name.
        report: The client's report. It may already refuse the model.
        typical: The medians of the last round.

    Raises:
        DivergedError: The model is bad, and `guard.on_divergence` is stop.
    """
    guard = job.guard
    reason, advice = report.refused or check_weights(guard, report.max_abs_weight), "lower train.lr, set train.clip,"
    if not reason and (reason := check_others(others)):
        advice = "look at the term that writes it, lower train.lr,"
    if reason and guard.on_divergence == "stop":
        raise DivergedError(
            f"round {hop.round}: the model left client {hop.client} (route {hop.route}, hop {hop.index}) with "
            f"{reason}; {advice} or go on without such hops with guard.on_divergence=skip"
        )
    if received is None:
        return report
    increase = None
    reason = reason or check_not_zeroed(guard, report.max_abs_weight, received[: job.layout.float_size])
    if not reason:
        reason, increase = check_public_loss(guard, flat_module, model, received, job.task, job.federation, typical)
    if not reason:
        return replace(report, public_loss_increase=increase)
    overhead = report.overhead_seconds
    return HopReport(0, 0, 0.0, refused=reason, public_loss_increase=increase, overhead_seconds=overhead)


@contextmanager
def describe_errors(action: str) -> Iterator[None]:
    """Let errors of the user's own code name the action; those that are not of a part become an EngineError."""
    try:
        with errors_in_own_part():
            yield
    except SpecError as error:
        raise SpecError(f"{action}: {error}") from error.__cause__
    except FedRelayError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())  # PyTorch's messages may have several lines
        raise EngineError(f"{action} failed: {type(error).__name__}: {text}") from error
