"""Evaluation in chunks of fixed size: sums over chunks give the same bits on any number of processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.federation import Samples
from fedrelay.local.loss import cross_entropy
from fedrelay.models.flat_layout import FlatModule

CHUNK = 512


@dataclass(frozen=True)
class EvaluationSums:
    """The summed loss and the counts per class over some samples. Sums of two sets of samples add up."""

    loss: float
    correct: NDArray[np.int64]
    predicted: NDArray[np.int64]
    actual: NDArray[np.int64]

    def __add__(self, other: EvaluationSums) -> EvaluationSums:
        return EvaluationSums(
            self.loss + other.loss,
            self.correct + other.correct,
            self.predicted + other.predicted,
            self.actual + other.actual,
        )

    @property
    def mean_loss(self) -> float:
        return self.loss / max(1, int(self.actual.sum()))


def chunk_count(samples: Samples) -> int:
    """The number of chunks; the last one may be smaller."""
    return -(-len(samples.y) // CHUNK)


def evaluate_chunk(flat_module: FlatModule, weights: Tensor, samples: Samples, chunk: int) -> EvaluationSums:
    """Evaluate a model on one chunk of samples."""
    piece = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
    flat_module.load(weights)
    flat_module.module.eval()
    with torch.no_grad():
        logits = flat_module.module(flat_module.to_inputs(samples.x[piece]))
        targets = samples.y[piece].to(flat_module.flat.device)
        loss = float(cross_entropy(logits, targets, reduction="sum"))
    actual = targets.flatten().cpu().numpy()
    counted = actual != IGNORED_LABEL
    actual, predicted = actual[counted], logits.flatten(0, -2).argmax(-1).cpu().numpy()[counted]
    counts = (
        np.bincount(each, minlength=logits.shape[-1]) for each in (actual[actual == predicted], predicted, actual)
    )
    return EvaluationSums(loss, *counts)


def evaluate_chunks(flat_module: FlatModule, weights: Tensor, samples: Samples) -> list[EvaluationSums]:
    """Evaluate a model on all samples, chunk by chunk."""
    return [evaluate_chunk(flat_module, weights, samples, chunk) for chunk in range(chunk_count(samples))]


def mean_loss(flat_module: FlatModule, weights: Tensor, samples: Samples) -> float:
    """The mean loss of a model over all predictions."""
    first, *others = evaluate_chunks(flat_module, weights, samples)
    return sum(others, first).mean_loss


def accuracy(flat_module: FlatModule, weights: Tensor, samples: Samples) -> float:
    """The share of correct predictions of a model; 0 without samples."""
    sums = evaluate_chunks(flat_module, weights, samples)
    correct, actual = (sum(int(getattr(each, name).sum()) for each in sums) for name in ("correct", "actual"))
    return correct / max(1, actual)
