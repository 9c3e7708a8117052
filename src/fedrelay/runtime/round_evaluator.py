"""The evaluation of a round: test and validation samples, and what callbacks add."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

import numpy as np

from fedrelay.data.evaluation_samples import EvaluationSet, evaluation_samples, sample_place
from fedrelay.data.non_finite_samples import refuse_non_finite
from fedrelay.engines.base import Engine
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.metrics.classification import accuracy_on_classes
from fedrelay.robustness.fault_events import UNDEFINED_METRIC, server_event
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.result import Row, on_validation
from fedrelay.runtime.round_attempts import events_of_engine
from fedrelay.tasks.base import EvaluationSums, MetricInfo, Scores

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundEvaluator:
    """Evaluates rounds and records their rows."""

    prepared: PreparedExperiment
    recorder: Recorder
    callback: Callback

    def evaluate(self, engine: Engine, context: RoundContext, train_loss: float | None) -> RoundContext:
        """Evaluate the model of a round and record the row, which the returned context has."""
        weights = context.model.weights
        sums = engine.evaluate(weights)
        found = self._scores(sums, "test")
        undefined = self._undefined(sums, found, "test")
        metrics: Row = {**_finite(found), "train_loss": train_loss}
        if self.prepared.has_validation:
            sums = engine.evaluate(weights, "validation")
            found = self._scores(sums, "validation")
            undefined += self._undefined(sums, found, "validation")
            metrics |= {on_validation(name): value for name, value in _finite(found).items()}
        self.recorder.add_events(events_of_engine(context.round, engine.take_events()))
        noted = self.recorder.add_events([server_event(context.round, UNDEFINED_METRIC, text) for text in undefined])
        if noted:
            log.warning("undefined in round %d: %s", context.round, "; ".join(event.done for event in noted))
        row = self.recorder.evaluation_row(context.round, metrics)
        row |= self.callback.on_evaluation(replace(context, row=dict(row))) or {}
        self.recorder.add_evaluation(row)
        return replace(context, row=dict(row))

    def _scores(self, sums: EvaluationSums, samples: EvaluationSet) -> Scores:
        if not math.isfinite(sums.loss) and self.prepared.experiment.engine.name != "flower":  # nodes check their own
            refuse_non_finite(evaluation_samples(self.prepared.federation, samples), f"{samples} set")
        scores = self.prepared.task.scores(sums)
        if classes := self.prepared.experiment.eval.classes:
            counts = (np.asarray(sums.values[name]) for name in ("correct", "actual"))
            scores["accuracy_classes"] = None if sums.non_finite else accuracy_on_classes(classes, *counts)
        return scores

    def _undefined(self, sums: EvaluationSums, scores: Scores, samples: EvaluationSet) -> list[str]:
        """Which metrics have no value, and why."""
        if sums.non_finite:
            row = sums.first_non_finite
            first = "" if row is None else f", first for {sample_place(self.prepared.federation, samples, row)}"
            return [f"all metrics on the {samples} samples (the model's outputs are NaN or infinite{first})"]
        found = {name: scores.get(name) for name in (*self.prepared.task_facts.metrics, "loss")}
        return [
            f"{name} on the {samples} samples ({why_undefined(self.prepared.task_facts.metric_info(name), value)})"
            for name, value in found.items()
            if value is None or not math.isfinite(value)
        ]


def why_undefined(metric: MetricInfo, value: float | None) -> str:
    """Why a metric has no value that can be used."""
    if value is not None:
        return f"its value is {value}"
    return f"it needs {metric.needs}" if metric.needs else "they do not determine it"


def _finite(scores: Scores) -> Row:
    """Scores as rows have them: None where there is no finite value."""
    return {name: value if value is not None and math.isfinite(value) else None for name, value in scores.items()}
