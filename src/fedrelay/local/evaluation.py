"""Evaluation in chunks of fixed size: sums over chunks give the same bits on any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedrelay.data.samples import Rows, SampleSource
from fedrelay.models.flat_layout import FlatModule
from fedrelay.tasks.base import EvaluationSums, Task

CHUNK = 512
READ_AT_ONCE = 64
"""Samples that are in memory at once, where they are read from a dataset."""


class Chunk(NamedTuple):
    """Samples that are evaluated together."""

    number: int
    """Its place among all chunks, which seeds random transforms."""

    rows: Rows

    @property
    def begin(self) -> int:
        """How many samples are in earlier chunks."""
        return self.number * CHUNK


def chunks_of(samples: SampleSource, rows: Rows | None = None) -> list[Chunk]:
    """All samples in chunks, or some of them; the last chunk may be smaller."""
    wanted = range(samples.size) if rows is None else rows
    return [Chunk(begin // CHUNK, wanted[begin : begin + CHUNK]) for begin in range(0, len(wanted), CHUNK)]


def chunk_outputs(
    flat_module: FlatModule, weights: Tensor, samples: SampleSource, chunk: Chunk
) -> Iterator[tuple[Any, Tensor]]:
    """A model's outputs for one chunk of samples and their targets, piece by piece."""
    flat_module.load(weights)
    flat_module.module.eval()
    for x, y in samples.pieces(chunk.rows, READ_AT_ONCE, chunk.number):
        with torch.no_grad():
            outputs = flat_module.outputs(flat_module.to_inputs(x))
        yield outputs, y.to(flat_module.flat.device)


def evaluate_chunk(
    flat_module: FlatModule, weights: Tensor, task: Task, samples: SampleSource, chunk: Chunk
) -> EvaluationSums:
    """Evaluate a model on one chunk of samples."""
    begin, found = chunk.begin, []
    with torch.no_grad():
        for outputs, targets in chunk_outputs(flat_module, weights, samples, chunk):
            found.append(task.evaluation_sums(outputs, targets).beginning_at(begin))
            begin += len(targets)
    return reduce(add, found)


def evaluate(
    flat_module: FlatModule, weights: Tensor, task: Task, samples: SampleSource, rows: Rows | None = None
) -> EvaluationSums:
    """Evaluate a model on all samples, or on some of them, chunk by chunk; there must be at least one."""
    chunks = chunks_of(samples, rows)
    return reduce(add, (evaluate_chunk(flat_module, weights, task, samples, chunk) for chunk in chunks))


def headline_score(flat_module: FlatModule, weights: Tensor, task: Task, samples: SampleSource) -> float:
    """The task's most important metric of a model, such as its accuracy; 0 without samples."""
    if not samples.size:
        return 0.0
    sums = evaluate(flat_module, weights, task, samples)
    return task.scores(sums)[task.headline] or 0.0
