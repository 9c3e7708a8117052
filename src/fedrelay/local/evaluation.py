"""Evaluation in chunks of fixed size: sums over chunks give the same bits on any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from fedrelay.data.samples import SampleSource
from fedrelay.models.flat_layout import FlatModule
from fedrelay.tasks.base import EvaluationSums, Task

CHUNK = 512
READ_AT_ONCE = 64
"""Samples that are in memory at once, where they are read from a dataset."""


def chunk_count(samples: SampleSource) -> int:
    """The number of chunks; the last one may be smaller."""
    return -(-samples.size // CHUNK)


def chunk_outputs(
    flat_module: FlatModule, weights: Tensor, samples: SampleSource, chunk: int
) -> Iterator[tuple[Any, Tensor]]:
    """A model's outputs for one chunk of samples and their targets, piece by piece."""
    rows = range(chunk * CHUNK, min((chunk + 1) * CHUNK, samples.size))
    flat_module.load(weights)
    flat_module.module.eval()
    for x, y in samples.pieces(rows, READ_AT_ONCE, chunk):
        with torch.no_grad():
            outputs = flat_module.outputs(flat_module.to_inputs(x))
        yield outputs, y.to(flat_module.flat.device)


def evaluate_chunk(
    flat_module: FlatModule, weights: Tensor, task: Task, samples: SampleSource, chunk: int
) -> EvaluationSums:
    """Evaluate a model on one chunk of samples."""
    begin, found = chunk * CHUNK, []
    with torch.no_grad():
        for outputs, targets in chunk_outputs(flat_module, weights, samples, chunk):
            found.append(task.evaluation_sums(outputs, targets).beginning_at(begin))
            begin += len(targets)
    return reduce(add, found)


def evaluate(flat_module: FlatModule, weights: Tensor, task: Task, samples: SampleSource) -> EvaluationSums:
    """Evaluate a model on all samples, chunk by chunk; there must be at least one."""
    chunks = range(chunk_count(samples))
    return reduce(add, (evaluate_chunk(flat_module, weights, task, samples, chunk) for chunk in chunks))


def headline_score(flat_module: FlatModule, weights: Tensor, task: Task, samples: SampleSource) -> float:
    """The task's most important metric of a model, such as its accuracy; 0 without samples."""
    if not samples.size:
        return 0.0
    sums = evaluate(flat_module, weights, task, samples)
    return task.scores(sums)[task.headline] or 0.0
