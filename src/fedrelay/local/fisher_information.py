"""The diagonal of the Fisher information: how much each weight matters to a client's predictions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.samples import SampleSource
from fedrelay.local.hop_context import Labels
from fedrelay.local.lane_sample_schedule import schedule
from fedrelay.local.seed_torch import seed_torch
from fedrelay.models.batched import BatchedModel, BoundBatchedModel
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
    if small and isinstance(inputs, Tensor) and flat_module.precision == "float32":
        batched = BatchedModel.of(flat_module.module, flat_module.layout, tuple(inputs.shape[1:]))
        if batched is not None:
            yield from batched_sample_gradients(batched, flat_module.flat, inputs, targets)
            return
    for sample in range(len(targets)):
        one = slice(sample, sample + 1)
        outputs = task.outputs_for_loss(flat_module.outputs(rows_of(inputs, one)), targets[one])
        likelihood = task.single_sample_loss(outputs, targets[one])
        yield flat_module.compute_gradient(likelihood)


def batched_sample_gradients(batched: BatchedModel, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """The same gradients, `[samples, size]`, from one batched model with a lane per sample."""
    count = len(targets)
    gradients = flat.new_empty(count, len(flat))
    bound = batched.bind(flat.expand(count, -1).contiguous(), gradients, 1)
    bound.load(inputs.flatten(1), torch.arange(count, device=inputs.device))
    ones = flat.new_ones(count, 1, 1)
    target_gradient = flat.new_zeros(count, batched.classes, 1).scatter_(1, targets.view(-1, 1, 1), -ones)
    bound.compute_gradient(target_gradient, ones)
    return gradients


def lane_fisher_diagonals(bound: BoundBatchedModel, task: Task, clients: LaneClients) -> Tensor:
    """The same means for batched models with a client each, `[lanes, size]`."""
    squares = torch.zeros_like(bound.gradient)
    for rows, weights in clients.steps():
        bound.load(clients.x, rows.view(-1))
        bound.forward()
        logits, targets = bound.logits.values.transpose(1, 2), clients.y[rows]
        gradient = task.sample_gradients(task.outputs_for_loss(logits, targets), targets).view_as(logits)
        torch.mul(gradient, (weights > 0).unsqueeze(2), out=bound.logits.gradient.transpose(1, 2))
        bound.backward_squared()
        squares += bound.gradient
    return squares / squares.new_tensor(clients.sizes).clamp(min=1).unsqueeze(1)


def lane_labels(bound: BoundBatchedModel, clients: LaneClients, seeds: Sequence[int]) -> Tensor:
    """Labels for all samples, drawn from each lane's model with its own seed."""
    parts = []
    for rows, _ in clients.steps():
        bound.load(clients.x, rows.view(-1))
        bound.forward()
        parts.append(bound.logits.values.transpose(1, 2).clone())
    labels, end = clients.y.clone(), 0
    for logits, size, seed in zip(torch.cat(parts, dim=1), clients.sizes, seeds, strict=True):
        seed_torch(seed, labels.device)
        begin, end = end, end + size
        for own, chunk in zip(torch.split(labels[begin:end], CHUNK), torch.split(logits[:size], CHUNK), strict=True):
            own.copy_(draw_labels(chunk, own))
    return labels


@dataclass(frozen=True)
class LaneClients:
    """The samples of each lane's client, those of the first lane first."""

    x: Tensor
    y: Tensor
    sizes: Sequence[int]
    width: int
    """The samples of a batch."""

    def steps(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of all samples, each once: rows and weights, `[lanes, batch]`; padding weighs nothing."""
        orders = [[np.arange(size)] for size in self.sizes]
        counts = [-(-size // self.width) for size in self.sizes]
        if any(counts):
            for block in schedule(orders, self.sizes, counts, self.width, self.x):
                yield from zip(block.rows.unbind(), block.sample_weights.squeeze(2).unbind(), strict=True)


def draw_labels(logits: Tensor, targets: Tensor) -> Tensor:
    """Labels drawn from the model's probabilities; padding stays padding."""
    drawn = torch.multinomial(logits.detach().flatten(0, -2).softmax(-1), 1).view_as(targets)
    return torch.where(targets == IGNORED_LABEL, targets, drawn)
