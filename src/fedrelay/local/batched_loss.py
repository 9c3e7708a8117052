"""The loss of batched models, and its gradient with respect to their logits and features.

From there on batched models have a backward pass of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fedrelay.local.batched_teachers import BatchedTeachers
from fedrelay.local.hop_context import HopContext
from fedrelay.local.lane_sample_schedule import LaneSampleBlock
from fedrelay.local.terms.base import LossTerm, ModelOutputs
from fedrelay.models.batched import BoundBatchedModel
from fedrelay.tasks.base import Task
from fedrelay.tasks.classification import is_plain_classification


class BlockLoss(Protocol):
    """The loss of a task in all steps of a block."""

    def steps(self, span: slice, lanes: int) -> Iterator[tuple[Tensor, ...]]:
        """What `write_gradient` needs for each step of a span in which so many lanes are active."""

    def write_gradient(self, bound: BoundBatchedModel, *step: Tensor) -> None:
        """Write the gradient of the logits, after the forward pass of a step."""

    def totals(self) -> Tensor:
        """The sum of each lane's losses, after all steps."""


def loss_of_block(task: Task, block: LaneSampleBlock, targets: Tensor, classes: int) -> BlockLoss:
    """The loss of a task for targets `[steps, lanes, batch, …]`."""
    plain = is_plain_classification(task)
    return PlainCrossEntropy(block, targets, classes) if plain else LossOfTask(task, block, targets, classes)


class PlainCrossEntropy:
    """The cross-entropy without class weights and label smoothing, prepared for all steps at once."""

    def __init__(self, block: LaneSampleBlock, targets: Tensor, classes: int) -> None:
        steps, lanes, width = targets.shape
        self.targets, self.weights = targets.unsqueeze(2), block.sample_weights
        nothing = self.weights.new_zeros(steps, lanes, classes, width)
        self.target_gradient = nothing.scatter_(2, self.targets, -self.weights)
        self.logits = torch.zeros_like(self.target_gradient)

    def steps(self, span: slice, lanes: int) -> Iterator[tuple[Tensor, ...]]:
        return _steps(span, lanes, self.target_gradient, self.weights, self.logits)

    def write_gradient(self, bound: BoundBatchedModel, *step: Tensor) -> None:
        target_gradient, weights, logits = step
        bound.write_cross_entropy_gradient(target_gradient, weights)
        logits.copy_(bound.logits.values)

    def totals(self) -> Tensor:
        log_likelihoods = torch.log_softmax(self.logits, dim=2).gather(2, self.targets)
        return log_likelihoods.mul_(self.weights).sum((0, 2, 3), dtype=torch.float64).neg_()


class LossOfTask:
    """The loss of any batchable task."""

    def __init__(self, task: Task, block: LaneSampleBlock, targets: Tensor, classes: int) -> None:
        self.task, self.targets, self.weights = task, targets, block.sample_weights.squeeze(2)
        of_samples = task.sample_weights(targets)
        if of_samples is not None:  # those of a batch add up to 1 again, and padding still weighs nothing
            total = (self.weights * of_samples).sum(2, keepdim=True)
            self.weights = torch.where(self.weights > 0, self.weights / total, 0)
        self.logits = self.weights.new_zeros(*self.weights.shape, classes)

    def steps(self, span: slice, lanes: int) -> Iterator[tuple[Tensor, ...]]:
        return _steps(span, lanes, self.targets, self.weights.unsqueeze(3), self.logits)

    def write_gradient(self, bound: BoundBatchedModel, *step: Tensor) -> None:
        targets, weights, logits = step
        logits.copy_(bound.logits.values.transpose(1, 2))
        gradient = self.task.sample_gradients(self.task.outputs_for_loss(logits, targets), targets)
        torch.mul(gradient.view_as(logits), weights, out=bound.logits.gradient.transpose(1, 2))

    def totals(self) -> Tensor:
        logits, targets = self.logits.flatten(0, 1), self.targets.flatten(0, 1)
        losses = self.task.sample_losses(self.task.outputs_for_loss(logits, targets), targets)
        weighted = torch.where(self.weights > 0, losses.view_as(self.weights) * self.weights, 0)
        return weighted.sum((0, 2), dtype=torch.float64)


class TermLosses:
    """What loss terms add to the loss of a task."""

    def __init__(self, terms: Sequence[LossTerm], teachers: BatchedTeachers) -> None:
        self.terms = terms
        self.teachers = teachers

    def add_gradient(
        self, bound: BoundBatchedModel, targets: Tensor, weights: Tensor, context: HopContext
    ) -> tuple[Tensor, Tensor | None]:
        """Add to the gradient of the logits, after the forward pass of a step.

        Args:
            bound: The active lanes.
            targets: `[lanes, batch]`.
            weights: `[lanes, batch]`, 1/b in a batch of b, 0 for padding.
            context: The context of the lanes.

        Returns:
            What is added to the loss of each lane, and the gradient of the features, if there is one.
        """
        outputs = ModelOutputs(bound.logits.values.transpose(1, 2), bound.features.values)
        batch = self.teachers.batch(bound, outputs, targets, weights)
        added, of_features = weights.new_zeros(len(weights), dtype=torch.float64), None
        for term in self.terms:
            losses, gradient = term.losses_and_gradient(batch, context)
            added += losses
            if gradient.logits is not None:
                bound.logits.gradient.add_(gradient.logits.transpose(1, 2))
            if gradient.features is not None:
                of_features = gradient.features if of_features is None else of_features + gradient.features
        return added, of_features


def _steps(span: slice, lanes: int, *parts: Tensor) -> Iterator[tuple[Tensor, ...]]:
    return zip(*(part[span, :lanes].unbind() for part in parts), strict=True)
