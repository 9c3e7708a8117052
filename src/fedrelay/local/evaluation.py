"""Evaluation in chunks of fixed size: sums over chunks give the same bits on any number of processes."""

from __future__ import annotations

from functools import reduce
from operator import add

import torch
from torch import Tensor

from fedrelay.data.federation import Samples
from fedrelay.models.flat_layout import FlatModule
from fedrelay.tasks.base import EvaluationSums, Task

CHUNK = 512


def chunk_count(samples: Samples) -> int:
    """The number of chunks; the last one may be smaller."""
    return -(-len(samples.y) // CHUNK)


def evaluate_chunk(
    flat_module: FlatModule, weights: Tensor, task: Task, samples: Samples, chunk: int
) -> EvaluationSums:
    """Evaluate a model on one chunk of samples."""
    piece = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
    flat_module.load(weights)
    flat_module.module.eval()
    with torch.no_grad():
        outputs = flat_module.module(flat_module.to_inputs(samples.x[piece]))
        return task.sums(outputs, samples.y[piece].to(flat_module.flat.device))


def evaluate(flat_module: FlatModule, weights: Tensor, task: Task, samples: Samples) -> EvaluationSums:
    """Evaluate a model on all samples, chunk by chunk; there must be at least one."""
    chunks = range(chunk_count(samples))
    return reduce(add, (evaluate_chunk(flat_module, weights, task, samples, chunk) for chunk in chunks))


def headline_score(flat_module: FlatModule, weights: Tensor, task: Task, samples: Samples) -> float:
    """The task's most important metric of a model, such as its accuracy; 0 without samples."""
    if not len(samples.y):
        return 0.0
    sums = evaluate(flat_module, weights, task, samples)
    return (task.scores(sums.values) | {"loss": sums.mean_loss})[task.headline] or 0.0
