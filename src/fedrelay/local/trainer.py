"""The training pass of one hop, exactly the same for every method and engine.

θ ← recv, fresh optimiser, train mode; for every epoch and mini-batch (shuffled, the short last one kept): gradient of
the cross-entropy, plus the terms, clipped, SGD step. Models with BatchNorm drop a short last batch, because its
statistics would be too poor, and meet a lone sample in evaluation mode, because one sample has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.federation import Federation
from fedrelay.local.arrival import HopReport
from fedrelay.local.sgd import Sgd
from fedrelay.local.terms.base import Anchors, Term
from fedrelay.models.layout import Layout, Workbench
from fedrelay.rng import Keyed, torch_seed
from fedrelay.routes.plan import Hop
from fedrelay.spec import Train

Loss = Callable[[Tensor, Tensor], Tensor]
"""What a step minimises: (outputs of the module, targets) → scalar."""


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The loss of a batch; predictions at every position of a sequence count as separate samples."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED_LABEL, reduction=reduction)


@dataclass(frozen=True)
class Job:
    """All that is needed to carry out hops."""

    module: nn.Module
    layout: Layout
    federation: Federation
    train: Train
    terms: Sequence[Term]
    seed: int
    lanes: int = 1
    loss: Loss = cross_entropy


class Trainer(Protocol):
    """Carries out hops. Each process has its own; between calls it keeps nothing."""

    def train(
        self, hops: Sequence[Hop], received: Sequence[Tensor], broadcast: Tensor, out: Sequence[Tensor]
    ) -> list[HopReport]:
        """Train each received model on its hop's client and write it to its place in `out`."""


class EagerTrainer:
    """One model after another, by automatic differentiation: any module, any device."""

    def __init__(self, job: Job, bench: Workbench) -> None:
        self.job = job
        self.bench = bench
        self.shuffle = Shuffle(job)
        modules = bench.module.modules()
        self.norms = [part for part in modules if isinstance(part, nn.modules.batchnorm._BatchNorm)]

    def train(
        self, hops: Sequence[Hop], received: Sequence[Tensor], broadcast: Tensor, out: Sequence[Tensor]
    ) -> list[HopReport]:
        """Train each model in turn."""
        return [self._hop(hop, recv, broadcast, place) for hop, recv, place in zip(hops, received, out, strict=True)]

    def _hop(self, hop: Hop, recv: Tensor, broadcast: Tensor, out: Tensor) -> HopReport:
        bench, train, terms = self.bench, self.job.train, self.job.terms
        trained = bench.layout.trainable
        x, y = self.job.federation.samples(hop.client)
        anchors = Anchors(*(model[:trained].to(train.device) for model in (recv, broadcast)))
        bench.load(recv)
        bench.module.train()
        optimiser = Sgd(train, bench.trained)
        total = torch.zeros((), dtype=torch.float64)
        steps = 0
        for inputs, targets in self._batches(hop, x, y):
            loss = self._loss(inputs, targets)
            bench.gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            for term in terms:
                term.add_to(bench.gradient, bench.trained, anchors)
            optimiser.step(bench.trained, bench.gradient)
            total += loss.detach().cpu()
            steps += 1
        bench.store(out)
        return HopReport(len(y), steps, float(total) / max(1, steps), bool(is_finite(out)))

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        lone = len(targets) == 1
        for norm in self.norms if lone else ():
            norm.eval()
        loss = self.job.loss(self.bench.module(inputs), targets)
        for norm in self.norms if lone else ():
            norm.train()
        return loss

    def _batches(self, hop: Hop, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        train = self.job.train
        seed_torch(torch_seed(self.job.seed, "dropout", *key_of(hop)), train.device)
        size, samples = train.batch_size, len(y)
        # Only BatchNorm models lose the short last batch, and never their only one.
        end = samples - samples % size if self.norms and samples > size else samples
        for order in self.shuffle.orders(hop, samples):
            index = torch.from_numpy(order)
            inputs, targets = self.bench.inputs(x[index]), y[index].to(train.device)
            for begin in range(0, end, size):
                yield inputs[begin : min(begin + size, end)], targets[begin : min(begin + size, end)]


class Shuffle:
    """The order in which a client's samples are seen."""

    def __init__(self, job: Job) -> None:
        self.epochs = job.train.epochs
        self.keyed = Keyed(job.seed, "batches")

    def orders(self, hop: Hop, samples: int) -> list[NDArray[np.int64]]:
        """One order for each epoch of a hop."""
        rng = self.keyed.at(*key_of(hop))
        return [rng.permutation(samples) for _ in range(self.epochs)]


def is_finite(models: Tensor) -> Tensor:
    """Whether models on the last axis are among the finite numbers; a sum is only if every weight is."""
    return torch.isfinite(models.sum(-1))


def key_of(hop: Hop) -> tuple[int, int, int, int]:
    """What a hop's randomness depends on, besides the seed and the purpose."""
    return hop.round, hop.route, hop.index, hop.client


def seed_torch(seed: int, device: str) -> None:
    """Seed what dropout draws from; seeding the CPU's generator alone is a hundred times faster than all devices'."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
