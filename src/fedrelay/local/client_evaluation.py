"""Evaluation of a model on the held-out samples of single clients, also after fine-tuning it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedrelay.data.holdout import HeldOutSamples, held_out_samples, without_pooling
from fedrelay.local.batched_trainer import trainer_for
from fedrelay.local.evaluation import chunk_outputs, chunks_of, evaluate
from fedrelay.local.hop_context import HopContext
from fedrelay.local.trainer import Trainer, TrainingJob
from fedrelay.models.flat_layout import FlatModule
from fedrelay.rng import torch_seed
from fedrelay.routes.plan import Hop
from fedrelay.tasks.base import EvaluationSums
from fedrelay.tasks.bootstrap import resample_counts, resampled_scores


@dataclass(frozen=True)
class ClientEvaluationSettings:
    """How models are evaluated on the held-out samples of each client."""

    round: int
    """The round of the evaluation: it keys the randomness of fine-tuning, and sets its learning rate."""

    fine_tune: int = 0
    """Steps of fine-tuning on the client's train samples, after which the model is evaluated again; 0 = none."""

    resamples: int = 0
    """Random resamples of the held-out samples that the metric is computed on as well."""

    metric: str = ""
    """The metric of the resamples."""


@dataclass(frozen=True)
class ClientEvaluation:
    """A model on the held-out samples of one client."""

    client: int
    sums: EvaluationSums
    fine_tuned: EvaluationSums | None = None
    """The same after fine-tuning."""

    resampled: tuple[float | None, ...] = ()
    """The metric on each resample of the held-out samples; None where it is undefined."""


class HeldOutEvaluator:
    """Evaluates models on the held-out samples of clients, in one process."""

    def __init__(self, job: TrainingJob, flat_module: FlatModule) -> None:
        self.job, self.flat_module = job, flat_module
        self._tuners: dict[int, tuple[TrainingJob, Trainer]] = {}

    @cached_property
    def held_out(self) -> HeldOutSamples:
        found = held_out_samples(self.job.federation)
        assert found is not None, "no client has held-out samples"
        return found

    def evaluate(
        self, clients: Sequence[int], models: Sequence[Tensor], wanted: ClientEvaluationSettings
    ) -> list[ClientEvaluation]:
        """Evaluate a model on each of some clients, which have held-out samples.

        Args:
            clients: The clients.
            models: The model of each.
            wanted: How they are evaluated.
        """
        tuned: Sequence[Tensor | None] = [None] * len(clients)
        if wanted.fine_tune:
            tuned = self.fine_tuned(clients, models, wanted)
        return [self._evaluate(*each, wanted) for each in zip(clients, models, tuned, strict=True)]

    def _evaluate(
        self, client: int, model: Tensor, tuned: Tensor | None, wanted: ClientEvaluationSettings
    ) -> ClientEvaluation:
        samples, task = self.held_out.of(client), self.job.task
        sums = evaluate(self.flat_module, model, task, samples)
        after = None if tuned is None else evaluate(self.flat_module, tuned, task, samples)
        return ClientEvaluation(client, sums, after, self._resampled(client, model, wanted))

    def _resampled(self, client: int, model: Tensor, wanted: ClientEvaluationSettings) -> tuple[float | None, ...]:
        if not wanted.resamples:
            return ()
        samples, task, outputs, targets = self.held_out.of(client), self.job.task, [], []
        for chunk in chunks_of(samples):
            for found, truth in chunk_outputs(self.flat_module, model, samples, chunk):
                outputs.append(task.outputs_for_loss(found, truth))
                targets.append(truth)
        counts = resample_counts(client, samples.size, wanted.resamples)
        return tuple(resampled_scores(task, wanted.metric, torch.cat(outputs), torch.cat(targets), counts))

    def fine_tuned(
        self, clients: Sequence[int], models: Sequence[Tensor], wanted: ClientEvaluationSettings
    ) -> list[Tensor]:
        """The model of each client after some steps on its train samples; clients without any keep theirs."""
        job, trainer = self._tuner(wanted.fine_tune)
        places = [place for place, client in enumerate(clients) if job.federation.sample_count(client)]
        out = [models[place].clone() for place in places]
        hops = [Hop(wanted.round, clients[place], 0, clients[place]) for place in places]
        trainer.train_hops(hops, [HopContext(models[place]) for place in places], out)
        trained = dict(zip(places, out, strict=True))
        return [trained.get(place, model) for place, model in enumerate(models)]

    def _tuner(self, steps: int) -> tuple[TrainingJob, Trainer]:
        """A job whose hops have this many plain steps, and its trainer."""
        if steps not in self._tuners:
            job = replace(
                self.job,
                federation=without_pooling(self.job.federation),
                terms=(),
                seed=torch_seed(self.job.seed, "fine-tune"),
                fixed_steps=steps,
            )
            self._tuners[steps] = job, trainer_for(job, self.flat_module)
        return self._tuners[steps]
