"""The base class of all learning tasks: what a model learns, and how its predictions are scored.

Metrics are computed from sums over samples. Sums of two sets of samples add up, so a model that is evaluated chunk by
chunk, client by client or node by node gets the same scores as in one pass.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.sections import Section
from fedrelay.models.nested_inputs import logits_of
from fedrelay.tasks.metric_info import LOSS as LOSS
from fedrelay.tasks.metric_info import MetricInfo as MetricInfo
from fedrelay.tasks.sample_columns import SampleColumns, numbered_columns, optional_numbers
from fedrelay.tasks.score_histogram import ScoreHistogram

Summable = NDArray[Any] | ScoreHistogram
"""Something that adds up over samples."""

_NUMBER_BYTES = 8

Scores = dict[str, float | None]
"""Metric → value; None where the samples do not determine it."""


class TargetInfo(Protocol):
    """What a task needs to know of the targets in a federation."""

    @property
    def name(self) -> str:
        """The name of the data."""

    @property
    def class_count(self) -> int:
        """The number of classes; 0 where targets are numbers."""

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one target: () for one label or number per sample."""

    @property
    def client_count(self) -> int:
        """The number of clients."""

    def histogram(self, client: int) -> NDArray[np.int64]:
        """The number of labels of each class that a client has."""


@dataclass(frozen=True)
class EvaluationSums:
    """The sums over some samples that all scores are computed from."""

    loss: float
    """The sum of the losses, each times its weight."""

    weight: float
    """The sum of the weights: the number of predictions, unless classes are weighted."""

    values: Mapping[str, Summable] = field(default_factory=dict)
    """The sums behind the metrics of the task."""

    non_finite: int = 0
    """The samples with outputs that are NaN or infinite and leave the loss without a value: no metric means anything
    then."""

    first_non_finite: int | None = None
    """The first of them in its evaluation set, where it is known."""

    def __add__(self, other: EvaluationSums) -> EvaluationSums:
        values: dict[str, Summable] = {name: value + other.values[name] for name, value in self.values.items()}
        first = other.first_non_finite if self.first_non_finite is None else self.first_non_finite
        return EvaluationSums(
            self.loss + other.loss, self.weight + other.weight, values, self.non_finite + other.non_finite, first
        )

    def beginning_at(self, row: int) -> EvaluationSums:
        """The same sums, of samples that begin at a row of their evaluation set."""
        return self if self.first_non_finite is None else replace(self, first_non_finite=row + self.first_non_finite)

    @property
    def bytes(self) -> int:
        """The size of all numbers, as they are sent."""
        return _NUMBER_BYTES * 3 + sum(value.nbytes for value in self.values.values())

    @property
    def mean_loss(self) -> float:
        return self.loss / self.weight if self.weight else 0.0


class Task(Section, ABC):
    """What is learned: a loss for training, and metrics for evaluation.

    A task is a frozen value; its fields are its settings (`task.FIELD` in a spec).
    """

    name: ClassVar[str]
    metrics: ClassVar[Mapping[str, MetricInfo]]
    """The metrics, the most important one first. `loss` is always there as well."""

    uses_classes: ClassVar[bool] = False
    """Whether targets are class labels."""

    @property
    def headline(self) -> str:
        """The metric that tables, targets and curves show."""
        return next(iter(self.metrics))

    def metric_info(self, name: str) -> MetricInfo:
        """Whether higher is better, and how the metric is shown."""
        return self.metrics.get(name, LOSS)

    def class_metrics(self, class_count: int) -> Mapping[str, MetricInfo]:
        """Metrics of single classes, which rows have beside `metrics`."""
        return {}

    @property
    def needs_class_counts(self) -> bool:
        """Whether `prepared` asks all clients for their number of labels of each class."""
        return False

    def prepared(self, targets: TargetInfo) -> Self:
        """The task with everything filled in that depends on the data, such as balanced class weights.

        Raises:
            DataError: The targets do not fit the task.
        """
        self.check_targets(targets)
        return self

    @abstractmethod
    def check_targets(self, targets: TargetInfo) -> None:
        """Raise a DataError if the targets do not fit the task."""

    @abstractmethod
    def output_count(self, targets: TargetInfo) -> int:
        """The number of outputs that a model needs for each prediction."""

    @abstractmethod
    def output_shape(self, targets: TargetInfo) -> tuple[int, ...]:
        """The shape of a model's outputs for one sample."""

    def outputs_for_loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """A model's outputs in the shape that `batch_loss`, `loss_sum` and `metric_sums` expect.

        Models of Hugging Face return an object with `logits`.
        """
        found = logits_of(outputs)
        if not isinstance(found, Tensor):
            raise SpecError(f"model: must return a tensor for the task {self.name!r}, got {type(outputs).__name__}")
        return found

    def check_outputs(self, outputs: Any, targets: Tensor, facts: TargetInfo) -> None:
        """Raise a SpecError if a model's outputs for some samples have the wrong shape or give no finite loss."""
        wanted = (len(targets), *self.output_shape(facts))
        found = logits_of(outputs)
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        if shape not in (wanted, wanted[:-1] if wanted[1:] == (1,) else wanted):
            raise SpecError(
                f"model: must return outputs of shape {wanted} for {len(targets)} samples (task {self.name!r}), "
                f"but returned {shape}"
            )

    @abstractmethod
    def batch_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch, a scalar: the mean over its predictions."""

    def sample_losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample in the batches of several models, times the sample's weight, `[lanes, samples]`.

        `batch_loss` of each batch is the sum divided by the sum of `sample_weights`, and `single_sample_loss` is the
        loss here. A task that overrides it can be learned by batched models.

        Args:
            outputs: `[lanes, samples, …]`, as `outputs_for_loss` returns them.
            targets: `[lanes, samples, …]`.
        """
        raise NotImplementedError(f"the loss of task {self.name!r} is not a mean over samples")

    def sample_weights(self, targets: Tensor) -> Tensor | None:
        """The weight of each sample in the mean of `batch_loss`, `[lanes, samples]`; None: all weigh the same."""
        return None

    def sample_gradients(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The gradient of `sample_losses` with respect to the outputs. Overridden only where a formula is faster."""
        outputs = outputs.detach().requires_grad_()
        [gradient] = torch.autograd.grad(self.sample_losses(outputs, targets).sum(), (outputs,))
        return gradient

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that changes the loss of its base class does not inherit what was written for that loss."""
        super().__init_subclass__(**options)
        loss = ("outputs_for_loss", "batch_loss", "single_sample_loss", "sample_losses", "sample_weights")
        for name in ("sample_losses", "sample_weights", "sample_gradients"):
            if name not in vars(cls) and any(changed in vars(cls) for changed in loss):
                setattr(cls, name, getattr(Task, name))

    @property
    def batchable(self) -> bool:
        """Whether batched models can learn it."""
        return type(self).sample_losses is not Task.sample_losses

    def loss_of_model_outputs(self, outputs: Any, targets: Tensor) -> Tensor:
        """The loss of a batch, from a model's outputs as they are."""
        return self.batch_loss(self.outputs_for_loss(outputs, targets), targets)

    def single_sample_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of a single sample, a batch of one: its negative log-likelihood, where the loss is one."""
        return self.batch_loss(outputs, targets)

    @abstractmethod
    def loss_sum(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """The sum of the losses of all predictions, each times its weight, and the sum of the weights."""

    @abstractmethod
    def metric_sums(self, outputs: Tensor, targets: Tensor) -> dict[str, Summable]:
        """The sums from which `metrics_from_sums` computes the metrics."""

    @abstractmethod
    def metrics_from_sums(self, values: Mapping[str, Summable]) -> Scores:
        """The metrics, from sums over all samples."""

    def scores(self, sums: EvaluationSums) -> Scores:
        """All metrics and the loss; metrics of outputs that are not finite are undefined."""
        metrics = self.metrics_from_sums(sums.values)
        return {**(dict.fromkeys(metrics) if sums.non_finite else metrics), "loss": sums.mean_loss}

    def score(self, sums: EvaluationSums, metric: str) -> float | None:
        """One metric, or the loss; for the bootstrap, which asks for the same one a thousand times."""
        return self.scores(sums)[metric]

    def why_sums_implausible(self, sums: EvaluationSums, predictions: range) -> str:
        """Why sums that somebody else reports cannot be true, or empty; `predictions` is how many they may count."""
        if round(sums.weight) not in predictions:
            return f"it evaluates {sums.weight:g} predictions instead of {predictions[-1]}"
        return "its loss is negative" if sums.loss < 0 else ""

    def evaluation_sums(self, outputs: Any, targets: Tensor) -> EvaluationSums:
        """Everything that evaluation needs of a batch."""
        return self._sums(self.outputs_for_loss(outputs, targets), targets)

    def _sums(self, outputs: Tensor, targets: Tensor) -> EvaluationSums:
        loss, weight = self.loss_sum(outputs, targets)
        # Outputs that do not count, such as −inf for classes that are ruled out, leave the loss finite.
        wrong = [] if math.isfinite(loss) else non_finite_samples(outputs)
        if wrong and isinstance(outputs, Tensor):  # sums stay finite, so that they can be sent
            outputs = torch.where(outputs.isfinite(), outputs, 0)
        return EvaluationSums(loss, weight, self.metric_sums(outputs, targets), len(wrong), next(iter(wrong), None))

    def sample_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """Predictions for single samples as columns of a table, for `predictions.csv` of an export.

        By default targets and outputs, where a sample has one or a list of them, then each sample's loss and metrics.

        Args:
            outputs: What `outputs_for_loss` returns.
            targets: The targets.
        """
        columns: SampleColumns = {}
        if outputs.dim() <= 2 and targets.dim() <= 2:
            columns = numbered_columns("target", targets) | numbered_columns("output", outputs, always=True)
        return columns | self.sample_scores(outputs, targets)

    def sample_scores(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """The loss and the metrics of each sample by itself, as columns."""
        sums_of_each = [self._sums(outputs[[sample]], targets[[sample]]) for sample in range(len(targets))]
        scores = [self.scores(sums) for sums in sums_of_each]
        losses = optional_numbers([sums.mean_loss if sums.weight else None for sums in sums_of_each])
        names = [name for name in (scores[0] if scores else self.metrics) if name != "loss"]
        return {"loss": losses, **{name: optional_numbers([each[name] for each in scores]) for name in names}}

    def sample_arrays(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """Predictions that no table can hold, such as masks of images: arrays `[samples, …]`, for `predictions.npz`."""
        return {}


def non_finite_samples(outputs: Any) -> list[int]:
    """The samples of a batch for which a model's outputs have NaN or infinite values."""
    found = logits_of(outputs)
    parts = [found] if isinstance(found, Tensor) else found.values() if isinstance(found, Mapping) else found
    tensors = [each for each in parts if isinstance(each, Tensor)] if isinstance(parts, Iterable) else []
    wrong = {row for each in tensors for row in (~each.isfinite()).nonzero()[:, :1].flatten().tolist()}
    return sorted(wrong)


def class_counts(targets: TargetInfo) -> NDArray[np.int64]:
    """The number of train labels of each class, over all clients."""
    counts = np.zeros(targets.class_count, np.int64)
    for client in range(targets.client_count):
        counts += targets.histogram(client)
    return counts


def check_class_labels(task: Task, targets: TargetInfo) -> None:
    """Raise a DataError if targets are not class labels."""
    if not targets.class_count:
        raise DataError(f"task {task.name!r}: needs class labels (whole numbers), but {targets.name!r} has numbers")
