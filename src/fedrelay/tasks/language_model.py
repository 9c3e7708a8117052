"""Language modelling: the next token at every position of a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.errors import DataError
from fedrelay.tasks.base import MetricInfo, Scores, Summable, TargetInfo, Task, check_class_labels
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns

MAX_LOG_PERPLEXITY = 700.0
"""exp() of more is no finite number."""


class LanguageModel(Task):
    """Cross-entropy of tokens; perplexity and accuracy over all positions that are not padding."""

    name: ClassVar[str] = "language-model"
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "perplexity": MetricInfo(
            higher_is_better=False, percent=False, needs=f"a mean loss below {MAX_LOG_PERPLEXITY:g}"
        ),
        "token_accuracy": MetricInfo(needs="labelled positions"),
    }
    uses_classes: ClassVar[bool] = True

    def check_targets(self, targets: TargetInfo) -> None:
        check_class_labels(self, targets)
        if len(targets.target_shape) != 1:
            raise DataError(
                f"task 'language-model': needs a token at every position, [samples, length]; "
                f"{targets.name!r} has targets of shape {targets.target_shape} per sample"
            )

    def output_count(self, targets: TargetInfo) -> int:
        return targets.class_count

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return (*targets.target_shape, targets.class_count)

    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _cross_entropy(outputs, targets, "mean")

    def single_sample_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The tokens of a sequence are one event, so their log-likelihoods add up."""
        return _cross_entropy(outputs, targets, "sum")

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        return float(_cross_entropy(outputs, targets, "sum")), int((targets != IGNORED_LABEL).sum())

    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        kept = targets != IGNORED_LABEL
        correct = int(((outputs.argmax(-1) == targets) & kept).sum())
        loss, tokens = self.loss_sum(outputs, targets)
        return {"tokens": np.array([tokens, correct, loss], np.float64)}

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The number of tokens of each sequence, without padding, and its loss, perplexity and accuracy."""
        counts = (targets != IGNORED_LABEL).sum(1)
        return numbered_columns("tokens", counts) | self.sample_scores(outputs, targets)

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        tokens, correct, loss = np.asarray(values["tokens"]).tolist()
        if not tokens:
            return dict.fromkeys(self.metrics)
        finite = math.isfinite(loss) and loss / tokens < MAX_LOG_PERPLEXITY
        return {"perplexity": math.exp(loss / tokens) if finite else None, "token_accuracy": correct / tokens}


def _cross_entropy(outputs: Tensor, targets: Tensor, reduction: Literal["mean", "sum"]) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED_LABEL, reduction=reduction)
