"""The diagonal of the Fisher information: how much each weight matters to a client's predictions."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.samples import SampleSource
from fedrelay.local.hop_context import Labels
from fedrelay.models.batched import BatchedModel
from fedrelay.models.flat_layout import FlatModule
from fedrelay.models.nested_inputs import Inputs, rows_of
from fedrelay.tasks.base import Task
from fedrelay.tasks.classification import is_plain_classification

CHUNK = 64
"""Samples whose gradients are held in memory at once."""

MAX_BATCHED_WEIGHTS = 1 << 18
"""For larger models, computing the gradients of several samples at once saves no time."""


def fisher_diagonal(flat_module: FlatModule, task: Task, samples: SampleSource, labels: Labels) -> Tensor:
    """The mean over samples of the squared gradient of the log-likelihood of their labels."""
    flat_module.module.eval()
    squares = torch.zeros_like(flat_module.gradient)
    for begin in range(0, samples.size, CHUNK):
        [(x, y)] = samples.pieces(range(begin, min(begin + CHUNK, samples.size)), CHUNK, begin)
        inputs, targets = flat_module.to_inputs(x), y.to(squares.device)
        if labels == "model":
            with torch.no_grad():
                targets = draw_labels(task.outputs_for_loss(flat_module.outputs(inputs), targets), targets)
        for gradient in sample_gradients(flat_module, task, inputs, targets):
            squares.addcmul_(gradient, gradient)
    return squares.div_(max(1, samples.size))


def sample_gradients(flat_module: FlatModule, task: Task, inputs: Inputs, targets: Tensor) -> Iterable[Tensor]:
    """The gradient of each sample's negative log-likelihood; each is valid until the next one is requested."""
    small = is_plain_classification(task) and targets.dim() == 1 and len(flat_module.trained) <= MAX_BATCHED_WEIGHTS
    if small and isinstance(inputs, Tensor) and inputs.is_cpu and flat_module.precision == "float32":
        batched = BatchedModel.of(flat_module.module, flat_module.layout, tuple(inputs.shape[1:]))
        if batched is not None:
            yield from batched_sample_gradients(batched, flat_module.flat, inputs, targets)
            return
    for sample in range(len(targets)):
        one = slice(sample, sample + 1)
        outputs = task.outputs_for_loss(flat_module.outputs(rows_of(inputs, one)), targets[one])
        likelihood = task.single_sample_loss(outputs, targets[one])
        flat_module.gradient.zero_()
        likelihood.backward()  # type: ignore[no-untyped-call]
        yield flat_module.gradient


def batched_sample_gradients(batched: BatchedModel, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The same gradients, `[samples, size]`, from one batched model with a lane per sample."""
    count = len(targets)
    gradients = flat.new_empty(count, len(flat))
    bound = batched.bind(flat.expand(count, -1).contiguous(), gradients, 1)
    bound.load(inputs.flatten(1), torch.arange(count))
    ones = flat.new_ones(count, 1, 1)
    target_gradient = flat.new_zeros(count, batched.classes, 1).scatter_(1, targets.view(-1, 1, 1), -ones)
    bound.compute_gradient(target_gradient, ones)
    return gradients


def draw_labels(logits: Tensor, targets: Tensor) -> Tensor:
    """Labels drawn from the model's probabilities; padding stays padding."""
    drawn = torch.multinomial(logits.detach().flatten(0, -2).softmax(-1), 1).view_as(targets)
    return torch.where(targets == IGNORED_LABEL, targets, drawn)
