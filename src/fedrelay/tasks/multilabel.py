"""Multi-label classification: any number of labels for each sample, each with its own output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedrelay.errors import DataError
from fedrelay.tasks.base import MetricInfo, Scores, Summable, TargetInfo, Task
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns


class MultiLabel(Task):
    """Binary cross-entropy on every output; a probability of at least 0.5 predicts a label."""

    name: ClassVar[str] = "multilabel"
    metrics: ClassVar[Mapping[str, MetricInfo]] = dict.fromkeys(
        ("f1_macro", "f1_micro", "label_accuracy"), MetricInfo()
    )

    def check_targets(self, targets: TargetInfo) -> None:
        if targets.class_count:
            raise DataError(f"task 'multilabel': {targets.name!r} has class labels; give 0 or 1 for each label")
        if len(targets.target_shape) != 1:
            raise DataError(
                f"task 'multilabel': targets must be 0 or 1 for each label, [samples, labels]; "
                f"{targets.name!r} has targets of shape {targets.target_shape} per sample"
            )

    def output_count(self, targets: TargetInfo) -> int:
        return targets.target_shape[0]

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return targets.target_shape

    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="none").mean(2)

    def sample_gradients(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.sigmoid() - targets) / outputs.shape[2]

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        loss = F.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype), reduction="sum")
        return float(loss), targets.numel()

    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        actual, predicted = (targets > 0.5).cpu().numpy(), (outputs >= 0).cpu().numpy()
        return {
            "correct": (actual & predicted).sum(0),
            "predicted": predicted.sum(0),
            "actual": actual.sum(0),
            "equal": (actual == predicted).sum(0),
            "samples": np.array([len(actual)]),
        }

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The prediction for each label, and its probability."""
        return {
            **numbered_columns("target", targets.long(), always=True),
            **numbered_columns("prediction", (outputs >= 0).long(), always=True),
            **numbered_columns("probability", outputs.double().sigmoid(), always=True),
            **numbered_columns("output", outputs, always=True),
        }

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        correct, predicted, actual, equal, samples = (
            np.asarray(values[name]) for name in ("correct", "predicted", "actual", "equal", "samples")
        )
        total = predicted + actual
        return {
            "f1_macro": float(np.mean(2 * correct / np.maximum(total, 1))),
            "f1_micro": float(2 * correct.sum() / max(1, total.sum())),
            "label_accuracy": float(equal.sum() / max(1, len(equal) * samples.sum())),
        }
