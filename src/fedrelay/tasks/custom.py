"""A task of the user's own: a loss and metrics, each a function of (outputs, targets)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import unknown
from fedrelay.experiment.spec import as_spec_error
from fedrelay.tasks.base import LOSS, EvaluationSums, MetricInfo, Scores, Summable, TargetInfo, Task
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns

Function = Callable[[Any, Tensor], Tensor]


class CustomTask(Task):
    """A task from functions.

    Args:
        loss: (outputs, targets) → the mean loss of a batch, a scalar tensor.
        metrics_of: Name → (outputs, targets) → one number for each sample, `[samples]`; the metric is their mean.
        higher_is_better: The metrics of which more is better; the others are errors.
        headline_metric: The metric that tables show; default the first one, or the loss.

    Raises:
        SpecError: An argument is unknown or not valid.

    Example:
        >>> import torch
        >>> task = CustomTask(
        ...     loss=lambda outputs, targets: (outputs - targets).abs().mean(),
        ...     metrics_of={"within_one": lambda outputs, targets: ((outputs - targets).abs() <= 1).float()},
        ...     higher_is_better=("within_one",),
        ... )
        >>> sums = task.evaluation_sums(torch.tensor([1.0, 5.0]), torch.tensor([1.5, 3.0]))
        >>> task.metrics_from_sums(sums.values), sums.mean_loss
        ({'within_one': 0.5}, 1.25)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str] = "custom"

    loss: Function
    metrics_of: Mapping[str, Function] = {}
    higher_is_better: tuple[str, ...] = ()
    headline_metric: str | None = None

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        if "loss" in self.metrics_of:
            raise ValueError("metrics_of: 'loss' is always measured; give the metric another name")
        for field in ("higher_is_better", "headline_metric"):
            given = getattr(self, field) or ()
            for name in (given,) if isinstance(given, str) else given:
                if name not in self.metrics_of and (field, name) != ("headline_metric", "loss"):
                    raise ValueError(f"{field}: {unknown('metric', name, self.metrics_of)}")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _explain_refusals(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Users build this task themselves: they get the same errors as from a spec."""
        try:
            return handler(given)
        except ValidationError as error:
            raise as_spec_error(cls, error, "task.") from None

    @property
    def metrics(self) -> Mapping[str, MetricInfo]:  # type: ignore[override]
        return {name: MetricInfo(name in self.higher_is_better, percent=False) for name in self.metrics_of}

    @property
    def headline(self) -> str:
        return self.headline_metric or next(iter(self.metrics_of), "loss")

    def metric_info(self, name: str) -> MetricInfo:
        return self.metrics.get(name, LOSS)

    def check_targets(self, targets: TargetInfo) -> None:
        """Only the user's loss knows which targets fit."""

    def output_count(self, targets: TargetInfo) -> int:
        return targets.class_count or int(np.prod(targets.target_shape, dtype=int))

    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        return ()

    def check_outputs(self, outputs: Any, targets: Tensor, facts: TargetInfo) -> None:
        """Raise a SpecError if the user's functions cannot read a model's outputs."""
        try:
            self.evaluation_sums(outputs, targets)
        except SpecError:
            raise
        except Exception as error:
            raise SpecError(f"task: fails on the outputs of the model: {type(error).__name__}: {error}") from error

    def outputs_for_loss(self, outputs: Any, targets: Tensor) -> Any:
        return outputs

    def batch_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        found = self.loss(outputs, targets)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise SpecError(f"task: the loss must return a tensor with one number, got {_described(found)}")
        return found.reshape(())

    def loss_sum(self, outputs: Any, targets: Tensor) -> tuple[float, float]:
        return float(self.batch_loss(outputs, targets)) * len(targets), len(targets)

    def metric_sums(self, outputs: Any, targets: Tensor) -> dict[str, Summable]:
        found = {name: self._metric(name, outputs, targets) for name in self.metrics_of}
        return {name: np.array([float(each.double().sum()), len(targets)]) for name, each in found.items()}

    def _metric(self, name: str, outputs: Any, targets: Tensor) -> Tensor:
        """A metric of each sample."""
        found = self.metrics_of[name](outputs, targets)
        if not isinstance(found, Tensor) or found.shape != (len(targets),):
            raise SpecError(
                f"task: the metric {name!r} must return one number for each of {len(targets)} samples, "
                f"got {_described(found)}"
            )
        return found

    def sample_columns(self, outputs: Any, targets: Tensor) -> SampleColumns:
        """Targets and outputs, where a sample has one or a list of them, and the metrics of each sample."""
        columns: SampleColumns = numbered_columns("target", targets) if targets.dim() <= 2 else {}
        if isinstance(outputs, Tensor) and outputs.dim() <= 2:
            columns |= numbered_columns("output", outputs, always=True)
        metrics = {name: self._metric(name, outputs, targets).float() for name in self.metrics_of}
        return columns | {name: values.cpu().numpy() for name, values in metrics.items()}

    def why_sums_implausible(self, sums: EvaluationSums, predictions: range) -> str:
        """Only the user knows whether a loss may be negative."""
        return super().why_sums_implausible(replace(sums, loss=0.0), predictions)

    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        return {name: float(np.asarray(total)[0] / max(1, np.asarray(total)[1])) for name, total in values.items()}


def _described(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
