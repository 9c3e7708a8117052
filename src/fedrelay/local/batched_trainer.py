"""Hops side by side: several models trained as one stack, each on its own client.

Lanes need not be alike. A short batch is filled up with samples that count nothing, a client with fewer steps leaves
the stack when it is done, so every lane gets the very gradients it would get alone; only rounding differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch
from torch import Tensor

from fedrelay.data.federation import Samples
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.arrival import HopReport
from fedrelay.local.batch_schedule import StepBlock, schedule
from fedrelay.local.hop_context import HopContext, HopOutcome, batch_contexts, write_back
from fedrelay.local.loss import cross_entropy
from fedrelay.local.sgd import Sgd
from fedrelay.local.terms.base import overriding
from fedrelay.local.trainer import EagerTrainer, Shuffle, Trainer, TrainingJob, finish, noise_of, remember
from fedrelay.models.batched import BatchedModel, BoundBatchedModel
from fedrelay.models.layout import FlatModule
from fedrelay.robustness.guard import peaks, shorten
from fedrelay.routes.plan import Hop

MOST_MULTIPLICATIONS = 25_000_000
"""The most that a forward pass of a stack may take."""


def lanes_for(job: TrainingJob) -> int:
    """How many models of a job are trained side by side; 1 also if they cannot be stacked."""
    stack = batched_model_for(job)
    return worthwhile(stack, job) if stack is not None else 1


def batched_model_for(job: TrainingJob) -> BatchedModel | None:
    """How a job's models are stacked, if they can and should be; it depends on the job alone, never on timing."""
    plain = job.loss is cross_entropy and all(term.stackable for term in job.terms)
    if not plain or job.lanes == 1 or job.train.device != "cpu":
        return None
    stack = BatchedModel.of(job.module, job.layout, job.federation.sample_shape)
    return stack if stack is not None and worthwhile(stack, job) else None


def worthwhile(stack: BatchedModel, job: TrainingJob) -> int:
    """How many models in one stack are worth it; 0 if even one is better left to automatic differentiation.

    A stack saves the start of operations and the bookkeeping between them, which matters the less the longer they take.
    Measured with batches of 4 to 256, models whose forward pass takes 10⁵ multiplications gained 7 to 12 times, those
    with 10⁶ 3 to 4 times, with 10⁷ 1.4 times, and beyond 2.5·10⁷ the gain was between -7 and 21 %. Lanes beyond that
    gained at most a sixth more, but would leave workers without a convoy.
    """
    return min(job.lanes, MOST_MULTIPLICATIONS // (stack.multiplications * job.train.batch_size))


def trainer_for(job: TrainingJob, bench: FlatModule) -> Trainer:
    """The fastest trainer for a job."""
    stack = batched_model_for(job)
    return BatchedTrainer(job, stack, worthwhile(stack, job)) if stack is not None else EagerTrainer(job, bench)


class BatchedTrainer:
    """Small models side by side, with the backward pass written out."""

    def __init__(self, job: TrainingJob, stack: BatchedModel, lanes: int) -> None:
        self.job = job
        self.stack = stack
        self.lanes = lanes
        self.shuffle = Shuffle(job)
        self.adding = overriding(job.terms, "add_to")
        self.flat = torch.zeros(lanes, job.layout.size, dtype=job.layout.dtype)
        self.gradient = torch.zeros_like(self.flat)
        self.bound = lru_cache(maxsize=4)(self._bind)

    def train(self, hops: Sequence[Hop], visits: Sequence[HopContext], out: Sequence[Tensor]) -> list[HopReport]:
        """Train as many models at once as the stack holds, those of the largest clients first."""
        samples = [self.job.federation.samples(hop.client) for hop in hops]
        steps = [self._steps(len(client.y)) for client in samples]
        order = sorted(range(len(hops)), key=lambda number: -len(samples[number].y))
        reports: dict[int, HopReport] = {}
        for begin in range(0, len(order), self.lanes):
            numbers = order[begin : begin + self.lanes]
            flat = self.flat[: len(numbers)]
            torch.stack([visits[number].recv for number in numbers], out=flat)
            arranged = [visits[number] for number in numbers]
            seen = batch_contexts(arranged) if self.job.attends else None
            losses = self._run([hops[number] for number in numbers], [samples[number] for number in numbers], seen)
            lengths = [0.0] * len(numbers)
            if seen is not None:
                counts = [steps[number] for number in numbers]
                lengths = self._part(flat, seen, [hops[number] for number in numbers], counts)
                write_back(seen, arranged)
            for number, model, loss, peak, length in zip(numbers, flat, losses, peaks(flat), lengths, strict=True):
                out[number].copy_(model)
                size, count, long = len(samples[number].y), steps[number], length > float(visits[number].longest)
                reports[number] = HopReport(size, count, loss / max(1, count), peak, length, long)
        return [reports[number] for number in range(len(hops))]

    def _part(self, flat: Tensor, seen: HopContext, hops: list[Hop], steps: list[int]) -> list[float]:
        """Let terms end the turns of all lanes; returns the length of each update."""
        terms = self.job.terms
        trained = finish(terms, flat, seen, partial(noise_of, self.job, hops, flat))
        lengths = shorten(flat, seen).flatten().tolist()
        counts = torch.tensor(steps, dtype=flat.dtype).unsqueeze(1)
        remember(terms, seen, HopOutcome(trained, flat, counts, self._train(hops).lr, flat, seen))
        return lengths

    def _run(self, hops: list[Hop], samples: list[Samples], visit: HopContext | None) -> list[float]:
        """Take every lane through all its steps; returns the sum of each lane's losses."""
        flat = self.flat[: len(hops)]
        x = torch.cat([client.x for client in samples]).flatten(1).to(flat.dtype)
        y = torch.cat([client.y for client in samples])
        sizes = [len(client.y) for client in samples]
        # Rounded up, so that clients of all sizes share the memory laid out for a few widths.
        width = min(self.job.train.batch_size, -(-max(1, *sizes) // 8) * 8)
        orders = [self.shuffle.orders(hop, size) for hop, size in zip(hops, sizes, strict=True)]
        optimiser = Sgd(self._train(hops), flat)
        totals = torch.zeros(len(hops), dtype=torch.float64)
        for block in schedule(orders, sizes, width, flat.dtype):
            totals += self._walk(block, x, y[block.rows].unsqueeze(2), optimiser, visit)
        return totals.tolist()

    def _walk(self, block: StepBlock, x: Tensor, targets: Tensor, optimiser: Sgd, visit: HopContext | None) -> Tensor:
        """Take the steps of one block; returns the sum of each lane's losses."""
        steps, all_lanes, _, width = targets.shape
        bound = self.bound(width)
        unwanted = x.new_zeros(steps, all_lanes, self.stack.classes, width).scatter_(2, targets, -block.shares)
        logits = torch.zeros_like(unwanted)
        for span, lanes in block.stretches():
            stack = bound(lanes)
            seen = visit.first(lanes) if visit is not None else None
            parts = (part[span, :lanes].unbind() for part in (block.rows, unwanted, block.shares, logits))
            for rows, unwanted_here, shares_here, logits_here in zip(*parts, strict=True):
                stack.load(x, rows.view(-1))
                logits_here.copy_(stack.fill_gradient(unwanted_here, shares_here))
                if seen is not None:
                    for term in self.adding:
                        term.add_to(stack.gradient, stack.flat, seen)
                optimiser.step(stack.flat, stack.gradient)
        chances = torch.log_softmax(logits, dim=2).gather(2, targets)
        return chances.mul_(block.shares).sum((0, 2, 3), dtype=torch.float64).neg_()

    def _bind(self, width: int) -> Callable[[int], BoundBatchedModel]:
        """The stack for batches of a width, by the number of lanes; all of them share the same memory."""
        return lru_cache(maxsize=None)(self.stack.bind(self.flat, self.gradient, width).narrowed)

    def _train(self, hops: Sequence[Hop]) -> TrainSettings:
        """How these hops, all of one round, train."""
        [round] = {hop.round for hop in hops}
        return self.job.train.at(round)

    def _steps(self, samples: int) -> int:
        return self.job.train.epochs * -(-samples // self.job.train.batch_size)
