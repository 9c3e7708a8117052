"""The evaluation of a round: test and validation samples, and what callbacks add."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.engines.base import Engine
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.metrics.classification import accuracy_on_classes
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.result import Row, on_validation
from fedrelay.runtime.round_attempts import events_of_engine
from fedrelay.tasks.base import EvaluationSums


@dataclass(frozen=True)
class RoundEvaluator:
    """Evaluates rounds and records their rows."""

    prepared: PreparedExperiment
    recorder: Recorder
    callback: Callback

    def evaluate(self, engine: Engine, context: RoundContext, train_loss: float | None) -> RoundContext:
        """Evaluate the model of a round and record the row, which the returned context has."""
        weights = context.model.weights
        metrics: Row = {**self._metrics(engine.evaluate(weights)), "train_loss": train_loss}
        if self.prepared.has_validation:
            found = self._metrics(engine.evaluate(weights, "validation"))
            metrics |= {on_validation(name): value for name, value in found.items()}
        self.recorder.add_events(events_of_engine(context.round, engine.take_events()))
        row = self.recorder.evaluation_row(context.round, metrics)
        row |= self.callback.on_evaluation(replace(context, row=dict(row))) or {}
        self.recorder.add_evaluation(row)
        return replace(context, row=dict(row))

    def _metrics(self, sums: EvaluationSums) -> Row:
        scores = {**self.prepared.task.metrics_from_sums(sums.values), "loss": sums.mean_loss}
        metrics: Row = {
            name: value if value is not None and math.isfinite(value) else None for name, value in scores.items()
        }
        if classes := self.prepared.experiment.eval.classes:
            counts = (np.asarray(sums.values[name]) for name in ("correct", "actual"))
            metrics["accuracy_classes"] = accuracy_on_classes(classes, *counts)
        return metrics
