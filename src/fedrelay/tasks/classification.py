"""Classification: one of several classes for each sample, or at each position of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.metrics.classification import accuracy_from_counts, scores_from_counts
from fedrelay.tasks.base import (
    EvaluationSums,
    MetricInfo,
    Scores,
    Summable,
    TargetInfo,
    Task,
    check_class_labels,
)
from fedrelay.tasks.class_weights import ClassWeightedTask, ClassWeights, check_class_weights
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns
from fedrelay.tasks.task_facts import CLASSIFICATION


def is_plain_classification(task: Task) -> bool:
    """Whether the loss is the plain cross-entropy, which batched models have built in."""
    return task == Classification()


class Classification(ClassWeightedTask):
    """Cross-entropy; accuracy, and precision, recall and F1 as means over classes."""

    name: ClassVar[str] = CLASSIFICATION.name
    metrics: ClassVar[Mapping[str, MetricInfo]] = CLASSIFICATION.metrics
    uses_classes: ClassVar[bool] = True

    class_weights: ClassWeights = Field(
        "none",
        description="weight of each class in the loss: none, balanced (rare classes weigh more, by the class counts of "
        "all clients), or a list of numbers",
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of each target spread over all classes")

    def check_targets(self, targets: TargetInfo) -> None:
        check_class_labels(self, targets)
        check_class_weights(self.class_weights, targets.class_count)

    def output_count(self, targets: TargetInfo) -> int:
        return targets.class_count

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return (*targets.target_shape, targets.class_count)

    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._cross_entropy(outputs, targets, "mean")

    def single_sample_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The labels of a sequence are one event, so their log-likelihoods add up."""
        return self._cross_entropy(outputs, targets, "sum")

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._cross_entropy(outputs, targets, "none").view_as(targets)

    def sample_weights(self, targets: Tensor) -> Tensor | None:
        return self._weight_tensor(torch.get_default_dtype(), targets.device)[targets] if self._weighted else None

    def sample_gradients(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weights = self._weight_tensor(outputs.dtype, outputs.device) if self._weighted else outputs.new_ones(1)
        spread = (weights * (self.label_smoothing / outputs.shape[-1])).expand_as(outputs)
        at_target = (1 - self.label_smoothing) * weights.expand(outputs.shape[-1])[targets]
        wanted = spread.scatter_add(-1, targets.unsqueeze(-1), at_target.unsqueeze(-1))
        return outputs.softmax(-1) * wanted.sum(-1, keepdim=True) - wanted

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        loss = float(self._cross_entropy(outputs, targets, "sum"))
        labels = targets[targets != IGNORED_LABEL]
        if not self._weighted:
            return loss, len(labels)
        weights = self._weight_tensor(outputs.dtype, outputs.device)
        return loss, float(weights[labels].sum(dtype=torch.float64))

    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        actual = targets.flatten().cpu().numpy()
        counted = actual != IGNORED_LABEL
        actual, predicted = actual[counted], outputs.flatten(0, -2).argmax(-1).cpu().numpy()[counted]
        found = {"correct": actual[actual == predicted], "predicted": predicted, "actual": actual}
        return {name: np.bincount(labels, minlength=outputs.shape[-1]) for name, labels in found.items()}

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The predicted class, its probability and that of each class; of sequences, their scores."""
        if targets.dim() > 1:
            counts = (targets != IGNORED_LABEL).flatten(1).sum(1)
            return numbered_columns("positions", counts) | self.sample_scores(outputs, targets)
        probabilities = outputs.double().softmax(-1)
        return {
            **numbered_columns("target", targets),
            **numbered_columns("prediction", outputs.argmax(-1)),
            **numbered_columns("probability", probabilities.amax(-1)),
            **numbered_columns("probability", probabilities, always=True),
            **numbered_columns("output", outputs, always=True),
        }

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        correct, predicted, actual = (np.asarray(values[name]) for name in ("correct", "predicted", "actual"))
        return asdict(scores_from_counts(correct, predicted, actual))

    def score(self, sums: EvaluationSums, metric: str) -> float | None:
        if metric == "accuracy" and not sums.non_finite:
            return accuracy_from_counts(np.asarray(sums.values["correct"]), np.asarray(sums.values["actual"]))
        return super().score(sums, metric)

    def why_sums_implausible(self, sums: EvaluationSums, predictions: range) -> str:
        correct, predicted, actual = (np.asarray(sums.values[name]) for name in ("correct", "predicted", "actual"))
        if (correct > predicted).any() or (correct > actual).any() or predicted.sum() != actual.sum():
            return "its counts contradict each other"
        counted = replace(sums, weight=float(actual.sum())) if self._weighted else sums
        return super().why_sums_implausible(counted, predictions)

    def _cross_entropy(self, outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
        return F.cross_entropy(
            outputs.flatten(0, -2),
            targets.flatten(),
            weight=self._weight_tensor(outputs.dtype, outputs.device) if self._weighted else None,
            ignore_index=IGNORED_LABEL,
            reduction=reduction,
            label_smoothing=self.label_smoothing,
        )

    @property
    def _weighted(self) -> bool:
        return isinstance(self.class_weights, tuple)

    def _weight_tensor(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.tensor(self.class_weights, dtype=dtype, device=device)
