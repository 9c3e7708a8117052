"""Binary classification: the probability of the positive class, from one output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from fedrelay.errors import DataError
from fedrelay.tasks.base import (
    LOSS,
    EvaluationSums,
    MetricInfo,
    Scores,
    Summable,
    TargetInfo,
    check_class_labels,
)
from fedrelay.tasks.class_weights import ClassWeightedTask, ClassWeights, check_class_weights
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns
from fedrelay.tasks.score_histogram import ScoreHistogram

CALIBRATION_BINS = 15
"""Bins of equal width of the expected calibration error, as in Guo et al., ICML 2017."""


class Binary(ClassWeightedTask):
    """Binary cross-entropy on one logit; a probability of at least 0.5 predicts the positive class."""

    name: ClassVar[str] = "binary"
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "auroc": MetricInfo(needs="samples of both classes"),
        "accuracy": MetricInfo(),
        "sensitivity": MetricInfo(needs="samples of class 1"),
        "specificity": MetricInfo(needs="samples of class 0"),
        "average_precision": MetricInfo(needs="samples of class 1"),
        "calibration_error": MetricInfo(higher_is_better=False),
        "brier": LOSS,
    }
    uses_classes: ClassVar[bool] = True

    class_weights: ClassWeights = Field(
        "none", description="weights of class 0 and class 1 in the loss: none, balanced, or two numbers"
    )

    def check_targets(self, targets: TargetInfo) -> None:
        check_class_labels(self, targets)
        if targets.class_count != 2 or targets.target_shape:
            raise DataError(
                f"task 'binary': needs one label 0 or 1 per sample; {targets.name!r} has {targets.class_count} classes "
                f"and labels of shape {targets.target_shape}"
            )
        check_class_weights(self.class_weights, 2)

    def output_count(self, targets: TargetInfo) -> int:
        return 1

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return (1,)

    def outputs_for_loss(self, outputs: object, targets: Tensor) -> Tensor:
        return super().outputs_for_loss(outputs, targets).reshape(targets.shape)

    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labels = targets.to(outputs.dtype)
        return F.binary_cross_entropy_with_logits(outputs, labels, self._weights(labels))

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labels = targets.to(outputs.dtype)
        return F.binary_cross_entropy_with_logits(outputs, labels, self._weights(labels), reduction="none")

    def sample_gradients(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labels = targets.to(outputs.dtype)
        gradient, weights = outputs.sigmoid() - labels, self._weights(labels)
        return gradient if weights is None else gradient * weights

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        labels = targets.to(outputs.dtype)
        loss = F.binary_cross_entropy_with_logits(outputs, labels, self._weights(labels), reduction="sum")
        return float(loss), len(targets)

    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        # A diverged model may give outputs that are no numbers; its loss says so, and its scores must not fail.
        logits, positive = np.nan_to_num(outputs.double().cpu().numpy()), targets.cpu().numpy() == 1
        probability = 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
        predicted = logits >= 0
        bins = np.minimum((probability * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
        return {
            "confusion": np.bincount(2 * positive + predicted, minlength=4),
            "scores": ScoreHistogram.of(logits, positive),
            "bin_gap": np.bincount(bins, probability - positive, CALIBRATION_BINS),
            "squared_error": np.array([((probability - positive) ** 2).sum()]),
        }

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The prediction, and the probability of the positive class."""
        return {
            **numbered_columns("target", targets),
            **numbered_columns("prediction", (outputs >= 0).long()),
            **numbered_columns("probability", outputs.double().sigmoid()),
            **numbered_columns("output", outputs, always=True),
        }

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        histogram = values["scores"]
        assert isinstance(histogram, ScoreHistogram)
        tn, fp, fn, tp = np.asarray(values["confusion"]).tolist()
        total = tn + fp + fn + tp
        gaps, squared = np.asarray(values["bin_gap"]), np.asarray(values["squared_error"])
        return {
            "auroc": histogram.auroc,
            "accuracy": _ratio(tp + tn, total),
            "sensitivity": _ratio(tp, tp + fn),
            "specificity": _ratio(tn, tn + fp),
            "average_precision": histogram.average_precision,
            "calibration_error": _ratio(float(np.abs(gaps).sum()), total),
            "brier": _ratio(float(squared.sum()), total),
        }

    def score(self, sums: EvaluationSums, metric: str) -> float | None:
        histogram = sums.values["scores"]
        if metric == "auroc" and isinstance(histogram, ScoreHistogram) and not sums.non_finite:
            return histogram.auroc
        return super().score(sums, metric)

    def why_sums_implausible(self, sums: EvaluationSums, predictions: range) -> str:
        histogram, confusion = sums.values["scores"], np.asarray(sums.values["confusion"])
        assert isinstance(histogram, ScoreHistogram)
        if histogram.counts.sum(0).tolist() != confusion.reshape(2, 2).sum(1).tolist():
            return "its counts contradict each other"
        return super().why_sums_implausible(sums, predictions)

    def _weights(self, labels: Tensor) -> Tensor | None:
        if not isinstance(self.class_weights, tuple):
            return None
        negative, positive = self.class_weights
        return labels * positive + (1 - labels) * negative


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
