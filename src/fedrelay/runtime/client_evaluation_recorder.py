"""The evaluation of single clients: each on its own held-out samples, with all metrics of the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedrelay.data.holdout import without_pooling
from fedrelay.engines.base import Engine
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.experiment.spec import Experiment
from fedrelay.local.client_evaluation import ClientEvaluation, ClientEvaluationSettings
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.round_attempts import events_of_engine
from fedrelay.runtime.round_evaluator import finite_scores
from fedrelay.tasks.base import EvaluationSums
from fedrelay.tasks.bootstrap import resamples_of_each

Models = Tensor | Mapping[int, Tensor]
"""One model for all clients, or the own model of each."""


def clients_are_evaluated(experiment: Experiment, round: int) -> bool:
    """Whether single clients are evaluated in a round: every `eval.per_client` rounds, and in the last one."""
    every = experiment.eval.per_client
    return every > 0 and (round % every == 0 or round == experiment.rounds)


@dataclass(frozen=True)
class ClientEvaluationRecorder:
    """Evaluates single clients and records a row for each."""

    prepared: PreparedExperiment
    recorder: Recorder

    def evaluate(self, engine: Engine, round: int, models: Models, on_test: Mapping[int, Row], *, final: bool) -> None:
        """Evaluate models on every client that has held-out samples, and record a row for every client.

        Args:
            engine: Evaluates.
            round: The round.
            models: The model, or those of the clients.
            on_test: Client → the scores of its own model on the test samples, where clients have their own.
            final: Whether the run is over: then the headline is also computed on resamples.
        """
        settings, counts = self.prepared.experiment.eval, self.prepared.held_out_counts
        resamples = resamples_of_each(sum(count > 0 for count in counts)) if final else 0
        wanted = ClientEvaluationSettings(round, settings.fine_tune, resamples, self.prepared.task_facts.headline)
        found = engine.evaluate_clients(models, wanted)
        events = engine.take_events()
        self.recorder.add_events(events_of_engine(round, events))
        reasons = {event.client: event.done for event in events}
        if not self.recorder.has_clients_of(round):
            samples = without_pooling(self.prepared.federation).sample_counts().tolist()
            for client, name in enumerate(self.prepared.client_names):
                row: Row = {"round": round, "client": client, "name": name, "train_samples": samples[client]}
                row |= {"held_out": counts[client], **self._scores(found.get(client))}
                if client in on_test:
                    row["test"] = on_test[client]
                if client not in found:
                    row["not_evaluated"] = self._why_not(client, samples[client], reasons)
                self.recorder.add_client(row)
        for client, each in found.items():
            if each.resampled:
                row = {"round": round, "client": client, "metric": wanted.metric}
                self.recorder.add_client_resamples({**row, "values": [_rounded(value) for value in each.resampled]})
        self.recorder.add_evaluation_costs(round, found, own_models=isinstance(models, Mapping))

    def _scores(self, found: ClientEvaluation | None) -> Row:
        if found is None:
            return {"scores": {}}
        after = {} if found.fine_tuned is None else {"fine_tuned": self._finite(found.fine_tuned)}
        return {"scores": self._finite(found.sums), **after}

    def _finite(self, sums: EvaluationSums) -> Row:
        return finite_scores(self.prepared.task.scores(sums))

    def _why_not(self, client: int, samples: int, reasons: Mapping[int, str]) -> str:
        if client in reasons:
            return reasons[client]
        if self.prepared.held_out_counts[client]:
            return "offline"
        return (
            "it has a single sample" if samples == 1 and self.prepared.experiment.data.holdout else "it holds out none"
        )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
