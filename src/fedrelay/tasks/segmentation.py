"""Segmentation: a class for every pixel of an image, or every voxel of a volume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.errors import DataError
from fedrelay.tasks.base import MetricInfo, Scores, Summable, TargetInfo, Task, check_class_labels
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns


class Segmentation(Task):
    """Cross-entropy plus the soft Dice loss; Dice and IoU as means over the classes that occur."""

    name: ClassVar[str] = "segmentation"
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "dice": MetricInfo(needs="pixels of a class that counts"),
        "iou": MetricInfo(needs="pixels of a class that counts"),
        "pixel_accuracy": MetricInfo(needs="labelled pixels"),
    }
    uses_classes: ClassVar[bool] = True

    dice_weight: float = Field(1.0, ge=0, description="weight of the Dice loss beside the cross-entropy")
    background: bool = Field(True, description="whether class 0 counts in the Dice and IoU scores")

    def class_metrics(self, class_count: int) -> Mapping[str, MetricInfo]:
        """The Dice score of each class."""
        first = 0 if self.background else 1
        return {f"dice_{k}": MetricInfo(needs=f"pixels of class {k}") for k in range(first, class_count)}

    def check_targets(self, targets: TargetInfo) -> None:
        check_class_labels(self, targets)
        if len(targets.target_shape) not in (1, 2, 3):
            raise DataError(
                f"task 'segmentation': needs a class for every pixel, [samples, height, width] (or one or three axes); "
                f"{targets.name!r} has targets of shape {targets.target_shape} per sample"
            )

    def output_count(self, targets: TargetInfo) -> int:
        return targets.class_count

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return (targets.class_count, *targets.target_shape)

    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(outputs, targets, ignore_index=IGNORED_LABEL)
        return loss + self.dice_weight * soft_dice_loss(outputs, targets) if self.dice_weight else loss

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """The Dice loss of a batch is no sum over pixels: each image counts with its own, if any pixel is labelled."""
        labelled = (targets != IGNORED_LABEL).flatten(1).any(1).nonzero().flatten().tolist()
        losses = [float(self.batch_loss(outputs[[k]], targets[[k]])) for k in labelled]
        return sum(losses), len(losses)

    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        classes = outputs.shape[1]
        actual, predicted = targets.flatten().cpu().numpy(), outputs.argmax(1).flatten().cpu().numpy()
        counted = actual != IGNORED_LABEL
        pairs = actual[counted] * classes + predicted[counted]
        return {"confusion": np.bincount(pairs, minlength=classes**2).reshape(classes, classes)}

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The number of labelled pixels of each image, and its loss, Dice, IoU and accuracy."""
        counts = (targets != IGNORED_LABEL).flatten(1).sum(1)
        return numbered_columns("pixels", counts) | self.sample_scores(outputs, targets)

    def sample_arrays(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The class of every pixel, as predicted and as labelled."""
        masks = {"prediction": outputs.argmax(1), "target": targets}
        smallest = np.min_scalar_type(-max(-IGNORED_LABEL, outputs.shape[1]))
        return {name: mask.cpu().numpy().astype(smallest) for name, mask in masks.items()}

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        confusion = np.asarray(values["confusion"])
        correct, sizes = confusion.diagonal(), confusion.sum(0) + confusion.sum(1)
        total = int(confusion.sum())
        first = 0 if self.background else 1
        dice = {k: 2 * correct[k] / sizes[k] for k in range(first, len(correct)) if sizes[k]}
        iou = {k: correct[k] / (sizes[k] - correct[k]) for k in dice}
        found: Scores = {
            "dice": float(np.mean(list(dice.values()))) if dice else None,
            "iou": float(np.mean(list(iou.values()))) if iou else None,
            "pixel_accuracy": float(correct.sum() / total) if total else None,
        }
        return found | {f"dice_{k}": float(dice[k]) if k in dice else None for k in range(first, len(correct))}


def soft_dice_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 − the mean over classes of the Dice coefficient of probabilities and labels, over the whole batch."""
    classes, kept = outputs.shape[1], (targets != IGNORED_LABEL).unsqueeze(1)
    labels = F.one_hot(targets.clamp(min=0), classes).movedim(-1, 1).to(outputs.dtype) * kept
    probabilities = outputs.softmax(1) * kept
    axes = [0, *range(2, outputs.dim())]
    overlap, sizes = (probabilities * labels).sum(axes), (probabilities + labels).sum(axes)
    return 1 - ((2 * overlap + 1) / (sizes + 1)).mean()
