"""The diagonal of the Fisher information: how much each weight matters to a client."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.local.hop_context import Labels
from fedrelay.local.loss import Loss, cross_entropy
from fedrelay.models.batched import BatchedModel
from fedrelay.models.layout import FlatModule

CHUNK = 64
"""Samples whose gradients are held at once."""

MOST_WEIGHTS = 1 << 18
"""Of larger models a gradient takes so long that having several side by side saves nothing."""


def fisher_diagonal(bench: FlatModule, loss: Loss, x: Tensor, y: Tensor, labels: Labels) -> Tensor:
    """The mean over samples of the squared gradient of the log-likelihood of their labels."""
    module, squares = bench.module.eval(), torch.zeros_like(bench.gradient)
    for begin in range(0, len(y), CHUNK):
        chunk = slice(begin, begin + CHUNK)
        inputs, targets = bench.inputs(x[chunk]), y[chunk].to(squares.device)
        if labels == "model":
            with torch.no_grad():
                targets = drawn(module(inputs), targets)
        for slope in slopes(bench, loss, inputs, targets):
            squares.addcmul_(slope, slope)
    return squares.div_(max(1, len(y)))


def slopes(bench: FlatModule, loss: Loss, inputs: Tensor, targets: Tensor) -> Iterable[Tensor]:
    """The gradient of the negative log-likelihood of each sample alone; valid until the next is asked for."""
    small = loss is cross_entropy and targets.dim() == 1 and len(bench.trained) <= MOST_WEIGHTS
    stack = BatchedModel.of(bench.module, bench.layout, tuple(inputs.shape[1:])) if small and inputs.is_cpu else None
    if stack is not None:
        yield from side_by_side(stack, bench.flat, inputs, targets)
        return
    for sample in range(len(targets)):
        one = slice(sample, sample + 1)
        logits = bench.module(inputs[one])
        # The labels of a sequence are one event, so their log-likelihoods add up.
        likelihood = cross_entropy(logits, targets[one], "sum") if loss is cross_entropy else loss(logits, targets[one])
        bench.gradient.zero_()
        likelihood.backward()  # type: ignore[no-untyped-call]
        yield bench.gradient


def side_by_side(stack: BatchedModel, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The same from one model for each sample, trained as one stack."""
    count = len(targets)
    found = flat.new_empty(count, len(flat))
    bound = stack.bind(flat.expand(count, -1).contiguous(), found, 1)
    bound.load(inputs.flatten(1), torch.arange(count))
    ones = flat.new_ones(count, 1, 1)
    unwanted = flat.new_zeros(count, stack.classes, 1).scatter_(1, targets.view(-1, 1, 1), -ones)
    bound.fill_gradient(unwanted, ones)
    return found


def drawn(logits: Tensor, targets: Tensor) -> Tensor:
    """Labels drawn by a model's own probabilities; padding stays padding."""
    chosen = torch.multinomial(logits.detach().flatten(0, -2).softmax(-1), 1).view_as(targets)
    return torch.where(targets == IGNORED_LABEL, targets, chosen)
