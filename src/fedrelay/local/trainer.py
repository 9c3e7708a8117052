"""The training pass of one hop, exactly the same for every method and engine.

θ ← recv, fresh optimiser, train mode; for every epoch and mini-batch (shuffled, the short last one kept): gradient of
the cross-entropy, plus the terms, clipped, SGD step. Models with BatchNorm drop a short last batch, because its
statistics would be too poor, and meet a lone sample in evaluation mode, because one sample has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.federation import Federation
from fedrelay.local.arrival import HopReport
from fedrelay.local.sgd import Sgd
from fedrelay.local.terms.base import Anchors, Term
from fedrelay.models.layout import Bench, Layout
from fedrelay.rng import generator, torch_seed
from fedrelay.routes.plan import Hop
from fedrelay.spec import Train

Loss = Callable[[Tensor, Tensor], Tensor]
"""What a step minimises: (outputs of the module, targets) → scalar."""


class Trainer:
    """A workbench that carries out hops. Each process has its own; between hops it keeps nothing."""

    def __init__(
        self,
        module: nn.Module,
        layout: Layout,
        federation: Federation,
        train: Train,
        terms: Sequence[Term],
        seed: int,
        loss: Loss,
    ) -> None:
        self.bench = Bench(module, layout, train.device)
        self.federation = federation
        self.train = train
        self.terms = terms
        self.seed = seed
        self.loss = loss
        self.norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]

    def hop(self, hop: Hop, recv: Tensor, broadcast: Tensor, out: Tensor) -> HopReport:
        """Train the received model on one client's samples and write the result to `out`."""
        bench, trained = self.bench, self.bench.layout.trainable
        x, y = self.federation.samples(hop.client)
        anchors = (
            Anchors(*(model[:trained].to(self.train.device) for model in (recv, broadcast))) if self.terms else None
        )
        bench.load(recv)
        bench.module.train()
        optimiser = Sgd(self.train)
        total = torch.zeros((), dtype=torch.float64)
        steps = 0
        for inputs, targets in self._batches(hop, x, y):
            loss = self._loss(inputs, targets)
            bench.gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            for term in self.terms:
                assert anchors is not None
                term.add_to(bench.gradient, bench.trained, anchors)
            optimiser.step(bench.trained, bench.gradient)
            total += loss.detach()
            steps += 1
        bench.store(out)
        finite = bool(torch.isfinite(out).all())
        return HopReport(len(y), steps, float(total) / max(1, steps), finite)

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        lone = len(targets) == 1 and self.norms
        if lone:
            for norm in self.norms:
                norm.eval()
        loss = self.loss(self.bench.module(inputs), targets)
        if lone:
            for norm in self.norms:
                norm.train()
        return loss

    def _batches(self, hop: Hop, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        key = (hop.round, hop.route, hop.index, hop.client)
        rng = generator(self.seed, "batches", *key)
        torch.manual_seed(torch_seed(self.seed, "dropout", *key))
        size, samples = self.train.batch_size, len(y)
        # Only BatchNorm models lose the short last batch, and never their only one.
        end = samples - samples % size if self.norms and samples > size else samples
        for _ in range(self.train.epochs):
            order = torch.from_numpy(rng.permutation(samples))
            inputs, targets = self.bench.inputs(x[order]), y[order].to(self.train.device)
            for begin in range(0, end, size):
                yield inputs[begin : min(begin + size, end)], targets[begin : min(begin + size, end)]


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """The loss of a batch; predictions at every position of a sequence count as separate samples."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED_LABEL, reduction=reduction)
