"""Regression: one or more numbers for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np
import torch.nn.functional as F  # noqa: N812
from pydantic import Field, model_validator
from torch import Tensor

from fedrelay.errors import DataError
from fedrelay.tasks.base import LOSS, MetricInfo, Scores, Summable, TargetInfo, Task
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns

ROUNDING = 1e-13
"""Targets whose squares differ relatively by less are all equal, up to rounding."""


class Regression(Task):
    """Squared, absolute or Huber error; RMSE, MAE and R² over all numbers of a sample together.

    R² compares with the mean of each number by itself: numbers with a larger variance weigh more.
    """

    name: ClassVar[str] = "regression"
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "rmse": LOSS,
        "mae": LOSS,
        "r2": MetricInfo(percent=False, needs="targets that differ"),
    }

    loss: Literal["mse", "mae", "huber"] = Field("mse", description="squared, absolute or Huber error")
    delta: float = Field(1.0, gt=0, description="huber: errors above this count linearly")

    @model_validator(mode="after")
    def _refuse_unused_delta(self) -> Self:
        if self.loss != "huber" and self.delta != 1.0:
            raise ValueError(f"delta: has no effect with the loss {self.loss!r}; only with huber")
        return self

    def check_targets(self, targets: TargetInfo) -> None:
        if targets.class_count:
            raise DataError(
                f"task 'regression': {targets.name!r} has class labels; give numbers (floating point) as targets"
            )

    def output_count(self, targets: TargetInfo) -> int:
        return int(np.prod(targets.target_shape, dtype=int))

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return targets.target_shape or (1,)

    def outputs_for_loss(self, outputs: object, targets: Tensor) -> Tensor:
        found = super().outputs_for_loss(outputs, targets)
        return found.reshape(targets.shape)  # [n, 1] and [n] both mean one number per sample

    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._error(outputs, targets, "mean")

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._error(outputs, targets, "none").reshape(*targets.shape[:2], -1).mean(2)

    def sample_gradients(self, outputs: Tensor, targets: Tensor) -> Tensor:
        difference = outputs - targets.to(outputs.dtype)
        if self.loss == "huber":
            slope = difference.clamp(-self.delta, self.delta)
        else:
            slope = 2 * difference if self.loss == "mse" else difference.sign()
        return slope / targets.shape[2:].numel()

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        return float(self._error(outputs.double(), targets, "sum")), targets.numel()

    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        actual, error = targets.double().cpu().numpy(), (outputs.double() - targets.double()).cpu().numpy()
        found = [error.size, (actual**2).sum(), np.abs(error).sum(), (error**2).sum()]
        numbers = actual.reshape(len(actual), targets.shape[1:].numel()).T
        totals = [np.ascontiguousarray(each).sum() for each in numbers]
        return {"moments": np.array(found, np.float64), "totals": np.array(totals, np.float64)}

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The prediction of each number."""
        return numbered_columns("target", targets) | numbered_columns("prediction", outputs)

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        count, squares, absolute, squared = np.asarray(values["moments"]).tolist()
        if not count:
            return dict.fromkeys(self.metrics)
        totals = np.asarray(values["totals"])
        spread = squares - float((totals**2).sum()) / (count / len(totals))
        varies = spread > ROUNDING * squares
        return {
            "rmse": float(np.sqrt(squared / count)),
            "mae": absolute / count,
            "r2": 1 - squared / spread if varies else None,
        }

    def _error(self, outputs: Tensor, targets: Tensor, reduction: str) -> Tensor:
        numbers = targets.to(outputs.dtype)
        if self.loss == "huber":
            return F.huber_loss(outputs, numbers, reduction, self.delta)
        error = F.mse_loss if self.loss == "mse" else F.l1_loss
        return error(outputs, numbers, reduction=reduction)
