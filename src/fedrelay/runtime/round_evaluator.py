"""The evaluation of a round: test and validation samples, and what callbacks add."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from statistics import fmean
from types import MappingProxyType

import numpy as np
from torch import Tensor

from fedrelay.data.evaluation_samples import EvaluationSet, evaluation_samples, sample_place
from fedrelay.data.non_finite_samples import refuse_non_finite
from fedrelay.engines.base import Engine
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.metrics.classification import accuracy_on_classes
from fedrelay.robustness.fault_events import UNDEFINED_METRIC, server_event
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.result import on_validation
from fedrelay.runtime.round_attempts import events_of_engine
from fedrelay.tasks.base import EvaluationSums, Scores

log = logging.getLogger(__name__)

OwnModels = Mapping[int, Tensor]
NO_MODELS: OwnModels = MappingProxyType({})


@dataclass(frozen=True)
class RoundEvaluator:
    """Evaluates rounds and records their rows."""

    prepared: PreparedExperiment
    recorder: Recorder
    callback: Callback

    def evaluate(
        self, engine: Engine, context: RoundContext, train_loss: float | None, own_models: OwnModels = NO_MODELS
    ) -> tuple[RoundContext, dict[int, Row]]:
        """Evaluate the model of a round and record the row.

        Args:
            engine: Evaluates.
            context: The round.
            train_loss: The mean loss of its hops.
            own_models: Client → its own model, if these are evaluated: the row then has the means over clients.

        Returns:
            The context with the row, and client → the scores of its own model on the test samples.
        """
        sums, scores = self._evaluate(engine, context, own_models, "test")
        undefined = self._undefined(sums, _means(scores), "test")
        metrics: Row = {**finite_scores(_means(scores)), "train_loss": train_loss}
        of_clients = dict(zip(own_models, map(finite_scores, scores), strict=True)) if own_models else {}
        if self.prepared.has_validation:
            sums, scores = self._evaluate(engine, context, own_models, "validation")
            undefined += self._undefined(sums, _means(scores), "validation")
            metrics |= {on_validation(name): value for name, value in finite_scores(_means(scores)).items()}
        self.recorder.add_events(events_of_engine(context.round, engine.take_events()))
        noted = self.recorder.add_events([server_event(context.round, UNDEFINED_METRIC, text) for text in undefined])
        if noted:
            log.warning("undefined in round %d: %s", context.round, "; ".join(event.done for event in noted))
        row = self.recorder.evaluation_row(context.round, metrics)
        row |= self.callback.on_evaluation(replace(context, row=dict(row))) or {}
        self.recorder.add_evaluation(row)
        return replace(context, row=dict(row)), of_clients

    def _evaluate(
        self, engine: Engine, context: RoundContext, own_models: OwnModels, on: EvaluationSet
    ) -> tuple[EvaluationSums, list[Scores]]:
        """The sums over all models, and the scores of each: of one model, or of every client's own."""
        if not own_models:
            sums = engine.evaluate(context.model.weights, on)
            return sums, [self._scores(sums, on)]
        of_models = engine.evaluate_models(list(own_models.values()), on)
        return reduce(add, of_models), [self._scores(each, on) for each in of_models]

    def _scores(self, sums: EvaluationSums, samples: EvaluationSet) -> Scores:
        if not math.isfinite(sums.loss) and not self.prepared.experiment.data_at_nodes:  # nodes check their own
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
        reasons = {
            name: self.prepared.task_facts.metric_info(name).why_undefined if value is None else f"its value is {value}"
            for name, value in found.items()
            if value is None or not math.isfinite(value)
        }
        return [f"{name} on the {samples} samples ({reason})" for name, reason in reasons.items()]


def _means(scores: Sequence[Scores]) -> Scores:
    """The mean of each metric over the models for which it is defined."""
    found = {name: [value for each in scores if (value := each[name]) is not None] for name in scores[0]}
    return {name: fmean(values) if values else None for name, values in found.items()}


def finite_scores(scores: Scores) -> Row:
    """Scores as rows have them: None where there is no finite value."""
    return {name: value if value is not None and math.isfinite(value) else None for name, value in scores.items()}
