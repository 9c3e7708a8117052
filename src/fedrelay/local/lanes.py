"""Hops side by side: several models trained as one stack, each on its own client.

Lanes need not be alike. A short batch is filled up with samples that count nothing, a client with fewer steps leaves
the stack when it is done, so every lane gets the very gradients it would get alone; only rounding differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.data.federation import Samples
from fedrelay.local.arrival import HopReport
from fedrelay.local.sgd import Sgd
from fedrelay.local.terms.base import Anchors
from fedrelay.local.trainer import EagerTrainer, Job, Shuffle, Trainer, cross_entropy, is_finite
from fedrelay.models.dense_stack import BoundStack, DenseStack
from fedrelay.models.layout import Workbench
from fedrelay.routes.plan import Hop


def stack_for(job: Job) -> DenseStack | None:
    """How a job's models are stacked, if they can be; it depends on the job alone, never on timing."""
    stackable = job.lanes > 1 and job.train.device == "cpu" and job.loss is cross_entropy
    return DenseStack.of(job.module, job.layout) if stackable else None


def trainer_for(job: Job, bench: Workbench) -> Trainer:
    """The fastest trainer for a job."""
    stack = stack_for(job)
    return StackedTrainer(job, stack) if stack is not None else EagerTrainer(job, bench)


class StackedTrainer:
    """Dense models side by side, by batched matrix products."""

    def __init__(self, job: Job, stack: DenseStack) -> None:
        self.job = job
        self.shuffle = Shuffle(job)
        self.flat = torch.zeros(job.lanes, job.layout.size, dtype=job.layout.dtype)
        self.gradient = torch.zeros_like(self.flat)
        self.bound = lru_cache(maxsize=None)(lambda lanes: stack.bind(self.flat[:lanes], self.gradient[:lanes]))

    def train(
        self, hops: Sequence[Hop], received: Sequence[Tensor], broadcast: Tensor, out: Sequence[Tensor]
    ) -> list[HopReport]:
        """Train all models at once; the clients with the most steps come first in the stack."""
        samples = [self.job.federation.samples(hop.client) for hop in hops]
        steps = [self._steps(len(client.y)) for client in samples]
        lanes = sorted(range(len(hops)), key=lambda number: -steps[number])
        flat = self.flat[: len(hops)]
        torch.stack([received[number] for number in lanes], out=flat)
        losses = self._run([hops[number] for number in lanes], [samples[number] for number in lanes], flat, broadcast)
        finite = is_finite(flat).tolist()
        reports: dict[int, HopReport] = {}
        for lane, number in enumerate(lanes):
            out[number].copy_(flat[lane])
            count = steps[number]
            reports[number] = HopReport(len(samples[number].y), count, losses[lane] / max(1, count), finite[lane])
        return [reports[number] for number in range(len(hops))]

    def _run(self, hops: list[Hop], samples: list[Samples], flat: Tensor, broadcast: Tensor) -> list[float]:
        """Take every lane through all its steps; returns the sum of each lane's losses."""
        job, schedule = self.job, self._schedule(hops, samples)
        x = torch.cat([client.x.flatten(1) for client in samples]).to(flat.dtype)
        y = torch.cat([client.y for client in samples])
        optimiser = Sgd(job.train, flat)
        anchors = Anchors(flat.clone(), broadcast) if job.terms else None
        totals = torch.zeros(len(hops), dtype=torch.float64)
        for rows, shares, lanes in schedule:
            stack: BoundStack = self.bound(lanes)
            theta, gradient = flat[:lanes], self.gradient[:lanes]
            inputs = x.index_select(0, rows).view(lanes, -1, x.shape[1])
            totals[:lanes] += stack.fill_gradient(inputs, y.index_select(0, rows).view(lanes, -1, 1), shares)
            if anchors is not None:
                for term in job.terms:
                    term.add_to(gradient, theta, Anchors(anchors.recv[:lanes], anchors.round))
            optimiser.step(theta, gradient)
        return totals.tolist()

    def _schedule(self, hops: list[Hop], samples: list[Samples]) -> list[tuple[Tensor, Tensor, int]]:
        """For every step: samples of all lanes still under way, how much each counts, and how many lanes these are."""
        sizes = [len(client.y) for client in samples]
        starts = np.cumsum([0, *sizes[:-1]])
        steps = [self._steps(size) for size in sizes]
        width = min(self.job.train.batch_size, max(sizes))
        rows = np.zeros((steps[0], len(hops), width), dtype=np.int64)
        shares = np.zeros((steps[0], len(hops), width), dtype=np.float64)
        for lane, (hop, size) in enumerate(zip(hops, sizes, strict=True)):
            filled = places(size, width)
            for epoch, order in enumerate(self.shuffle.orders(hop, size)):
                span = slice(epoch * len(filled), (epoch + 1) * len(filled))
                rows[span, lane][filled > 0] = starts[lane] + order
                shares[span, lane] = filled
        under_way = [sum(count > step for count in steps) for step in range(steps[0])]
        all_rows = torch.from_numpy(rows)
        all_shares = torch.from_numpy(shares).to(self.flat.dtype).unsqueeze(-1)
        return [
            (all_rows[step, :lanes].reshape(-1), all_shares[step, :lanes], lanes)
            for step, lanes in enumerate(under_way)
        ]

    def _steps(self, samples: int) -> int:
        return self.job.train.epochs * -(-samples // self.job.train.batch_size)


@lru_cache(maxsize=1024)
def places(samples: int, width: int) -> NDArray[np.float64]:
    """How much each place of one epoch counts, `[steps, width]`: 1/b in a batch of b, 0 where it is left empty."""
    taken = (np.arange(-(-samples // width) * width).reshape(-1, width) < samples).astype(np.float64)
    taken /= taken.sum(axis=1, keepdims=True)
    taken.flags.writeable = False
    return taken
