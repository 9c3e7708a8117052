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
from fedrelay.data.samples import Rows
from fedrelay.engines.base import Engine
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.metrics.classification import accuracy_on_classes
from fedrelay.robustness.fault_events import UNDEFINED_METRIC, server_event
from fedrelay.runtime.callback import Callback, RoundContext
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.result import on_validation
from fedrelay.runtime.round_attempts import events_of_engine
from fedrelay.runtime.run_state import BestSoFar
from fedrelay.tasks.base import EvaluationSums, Scores

log = logging.getLogger(__name__)

OwnModels = Mapping[int, Tensor]
NO_MODELS: OwnModels = MappingProxyType({})
ALL_SAMPLES: Mapping[EvaluationSet, Rows] = MappingProxyType({})

LONG_RUN = 120.0
"""Seconds; nobody needs to make shorter runs faster."""

LARGE_SHARE = 0.25
"""Of the time of a run: more evaluation than this deserves a word."""


@dataclass(frozen=True)
class RoundEvaluator:
    """Evaluates rounds and records their rows."""

    prepared: PreparedExperiment
    recorder: Recorder
    callback: Callback

    def evaluate(
        self, engine: Engine, context: RoundContext, train_loss: float | None, own_models: OwnModels = NO_MODELS
    ) -> tuple[RoundContext, dict[int, Row]]:
        """Evaluate the model of a round and record the row. With `eval.subset`, metrics are on these samples.

        Args:
            engine: Evaluates.
            context: The round.
            train_loss: The mean loss of its hops.
            own_models: Client → its own model, if these are evaluated: the row then has the means over clients.

        Returns:
            The context with the row, and client → the scores of its own model on all test samples.
        """
        models = own_models or context.model.weights
        subset = self.prepared.evaluation_subset
        on_test, validated, of_clients = self._metrics(engine, context.round, models, subset)
        metrics: Row = {**on_test, "train_loss": train_loss, **validated}
        row = self.recorder.evaluation_row(context.round, metrics)
        row |= self.callback.on_evaluation(replace(context, row=dict(row))) or {}
        self.recorder.add_evaluation(row)
        return replace(context, row=dict(row)), {} if subset else of_clients

    def evaluate_end(
        self, engine: Engine, context: RoundContext, best: BestSoFar | None, own_models: OwnModels = NO_MODELS
    ) -> dict[int, Row]:
        """Evaluate the last model of a run, and the best one, on all samples, where rows are on a subset.

        Where every client's own model is evaluated, only those of the last round are there.

        Args:
            engine: Evaluates.
            context: The last round.
            best: The best model on validation samples, if there is one.
            own_models: Client → its own model, if these are evaluated.

        Returns:
            Client → the scores of its own model on the test samples.
        """
        on_test, validated, of_clients = self._metrics(engine, context.round, own_models or context.model.weights)
        line: Row = {"round": context.round, "last": {**on_test, **validated}}
        if best is not None and best.round == context.round:
            line["best"] = line["last"]
        elif best is not None and not own_models:
            on_test, validated, _ = self._metrics(engine, best.round, best.weights)
            line["best"] = {**on_test, **validated}
        self.recorder.add_final_evaluation(line)
        return of_clients

    def _metrics(
        self,
        engine: Engine,
        round: int,
        models: Tensor | OwnModels,
        rows: Mapping[EvaluationSet, Rows] = ALL_SAMPLES,
    ) -> tuple[Row, Row, dict[int, Row]]:
        """All metrics of a model on test and validation samples, or their means over the clients' own models.

        Args:
            engine: Evaluates.
            round: The round of the model.
            models: The model, or those of the clients.
            rows: The samples of each set, by their numbers; all of a set that is missing.

        Returns:
            The metrics on test samples, those on validation samples, and client → the scores of its own model on the
            test samples.
        """
        sums, scores = self._evaluate(engine, models, "test", rows.get("test"))
        undefined = self._undefined(sums, _means(scores), "test", rows)
        on_test, validated = {**finite_scores(_means(scores)), **self._sample_count("test", rows)}, Row()
        of_clients = {} if isinstance(models, Tensor) else dict(zip(models, map(finite_scores, scores), strict=True))
        if self.prepared.has_validation:
            sums, scores = self._evaluate(engine, models, "validation", rows.get("validation"))
            undefined += self._undefined(sums, _means(scores), "validation", rows)
            validated = {on_validation(name): value for name, value in finite_scores(_means(scores)).items()}
            validated |= self._sample_count("validation", rows)
        self.recorder.add_events(events_of_engine(round, engine.take_events()))
        noted = self.recorder.add_events([server_event(round, UNDEFINED_METRIC, text) for text in undefined])
        if noted:
            log.warning("undefined in round %d: %s", round, "; ".join(event.done for event in noted))
        return on_test, validated, of_clients

    def _sample_count(self, on: EvaluationSet, rows: Mapping[EvaluationSet, Rows]) -> Row:
        """How many samples of a set metrics are on, where it is not always the same."""
        if on not in self.prepared.evaluation_subset:
            return {}
        every = evaluation_samples(self.prepared.federation, on).size
        return {f"{on}_samples": len(rows[on]) if on in rows else every}

    def _evaluate(
        self, engine: Engine, models: Tensor | OwnModels, on: EvaluationSet, rows: Rows | None
    ) -> tuple[EvaluationSums, list[Scores]]:
        """The sums over all models, and the scores of each: of one model, or of every client's own."""
        if isinstance(models, Tensor):
            sums = engine.evaluate(models, on, rows)
            return sums, [self._scores(sums, on)]
        of_models = engine.evaluate_models(list(models.values()), on, rows)
        return reduce(add, of_models), [self._scores(each, on) for each in of_models]

    def _scores(self, sums: EvaluationSums, samples: EvaluationSet) -> Scores:
        if not math.isfinite(sums.loss) and not self.prepared.experiment.data_at_nodes:  # nodes check their own
            refuse_non_finite(evaluation_samples(self.prepared.federation, samples), f"{samples} set")
        scores = self.prepared.task.scores(sums)
        if classes := self.prepared.experiment.eval.classes:
            counts = (np.asarray(sums.values[name]) for name in ("correct", "actual"))
            scores["accuracy_classes"] = None if sums.non_finite else accuracy_on_classes(classes, *counts)
        return scores

    def _undefined(
        self, sums: EvaluationSums, scores: Scores, samples: EvaluationSet, rows: Mapping[EvaluationSet, Rows]
    ) -> list[str]:
        """Which metrics have no value, and why."""
        if sums.non_finite:
            row = sums.first_non_finite
            row = int(rows[samples][row]) if row is not None and samples in rows else row
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


def evaluation_advice(evaluation_seconds: float, seconds: float, every: int) -> str | None:
    """How a long run that mostly evaluated could have spent a tenth of its time on it.

    Example:
        >>> evaluation_advice(300, 500, every=1)
        'evaluation took 60 % of the time; with eval.every: 14 it would take about 10 %, or use eval.subset'
    """
    if seconds < LONG_RUN or evaluation_seconds < LARGE_SHARE * seconds:
        return None
    rest = max(seconds - evaluation_seconds, 0.01 * seconds)
    wanted = math.ceil(9 * every * evaluation_seconds / rest)
    share = f"{100 * evaluation_seconds / seconds:.0f} %"
    return (
        f"evaluation took {share} of the time; with eval.every: {wanted} it would take about 10 %, or use eval.subset"
    )
