"""What is known of a task without its code: its metrics, and the one that a run is judged by.

A run folder keeps these facts, so that a report of somebody else's run needs no import of their task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import unknown
from fedrelay.tasks.metric_info import LOSS, MetricInfo

if TYPE_CHECKING:
    from fedrelay.tasks.base import Task

LABELS = {
    "auroc": "AUROC",
    "brier": "Brier score",
    "f1": "macro F1",
    "f1_macro": "macro F1",
    "f1_micro": "micro F1",
    "dice": "Dice",
    "iou": "IoU",
    "mae": "MAE",
    "r2": "R²",
    "rmse": "RMSE",
}
"""Names of metrics as people write them; others are their own name with spaces."""


@dataclass(frozen=True)
class TaskFacts:
    """The name of a task, its metrics, and the metric that tables, targets and curves show."""

    name: str
    headline: str
    metrics: Mapping[str, MetricInfo]
    """All metrics, the task's own headline first; without the loss, and of single classes only the headline."""

    @classmethod
    def of(cls, task: Task, wanted: str | None = None, class_count: int = 0) -> Self:
        """The facts of a task.

        Args:
            task: The task.
            wanted: The metric to judge a run by; default the task's own.
            class_count: The number of classes of the data, for metrics of single classes.

        Raises:
            SpecError: The task has no such metric.
        """
        of_classes = task.class_metrics(class_count)
        known = (*task.metrics, *of_classes, "loss")
        if wanted is not None and wanted not in known:
            raise SpecError(f"eval.metric: {unknown('metric', wanted, known)} for the task {task.name!r}")
        first = {task.headline: task.metric_info(task.headline)} if task.headline in task.metrics else {}
        of_class = {name: info for name, info in of_classes.items() if name == wanted}
        return cls(task.name, wanted or task.headline, {**first, **task.metrics, **of_class})

    @property
    def headline_info(self) -> MetricInfo:
        """Whether a higher headline is better, and how it is shown."""
        return self.metric_info(self.headline)

    def metric_info(self, name: str) -> MetricInfo:
        """Whether higher is better, and how the metric is shown; any other number counts as a loss."""
        return self.metrics.get(name, LOSS)

    @property
    def label(self) -> str:
        """The headline as people write it."""
        return metric_label(self.headline)

    @property
    def measured_on_clients(self) -> str:
        """The metric that models are compared by on the samples of single clients: the task's own headline."""
        return next(iter(self.metrics), "loss")

    @property
    def best_possible(self) -> float | None:
        """The best value of the headline, 1 for shares; None where there is none, or where it can be 0."""
        return 1.0 if self.headline_info.percent and self.headline_info.higher_is_better else None

    def as_dict(self) -> dict[str, Any]:
        """These facts as plain values."""
        metrics = {name: asdict(metric) for name, metric in self.metrics.items()}
        return {"name": self.name, "headline": self.headline, "metrics": metrics}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote.

        Raises:
            ValueError: Something is missing or has another type.
        """
        try:
            name, headline = facts["name"], facts["headline"]
            metrics = {
                str(each): MetricInfo(
                    found["higher_is_better"] is True, found["percent"] is True, str(found.get("needs", ""))
                )
                for each, found in facts["metrics"].items()
            }
        except (KeyError, TypeError, AttributeError):
            raise ValueError("it does not say how its metrics are read") from None
        if not isinstance(name, str) or not isinstance(headline, str) or headline not in (*metrics, "loss"):
            raise ValueError("its headline is no metric of its task")
        return cls(name, headline, metrics)


def metric_label(name: str) -> str:
    """A metric as people write it: `rmse` → RMSE, `pixel_accuracy` → pixel accuracy."""
    return LABELS.get(name, name.replace("_", " "))


CLASSIFICATION = TaskFacts(
    "classification", "accuracy", dict.fromkeys(("accuracy", "precision", "recall", "f1"), MetricInfo())
)
"""The facts of classification, judged by its accuracy."""
