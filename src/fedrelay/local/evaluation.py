"""Evaluation in fixed chunks: integer counts and sums that add up to the same bits whoever computes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.federation import Samples
from fedrelay.local.loss import cross_entropy
from fedrelay.models.layout import FlatModule

CHUNK = 512


@dataclass(frozen=True)
class EvaluationSums:
    """What was seen on some test samples; verdicts add up. Arrays count per class."""

    loss: float
    correct: NDArray[np.int64]
    predicted: NDArray[np.int64]
    actual: NDArray[np.int64]

    def __add__(self, other: EvaluationSums) -> EvaluationSums:
        """The verdict on both."""
        return EvaluationSums(
            self.loss + other.loss,
            self.correct + other.correct,
            self.predicted + other.predicted,
            self.actual + other.actual,
        )

    @property
    def mean_loss(self) -> float:
        """Loss per prediction."""
        return self.loss / max(1, int(self.actual.sum()))


def chunks(samples: Samples) -> int:
    """The number of pieces in which samples are judged."""
    return -(-len(samples.y) // CHUNK)


def evaluate_chunk(bench: FlatModule, weights: Tensor, samples: Samples, chunk: int) -> EvaluationSums:
    """Judge a model on one chunk of samples."""
    piece = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
    bench.load(weights)
    bench.module.eval()
    with torch.no_grad():
        logits = bench.module(bench.inputs(samples.x[piece]))
        targets = samples.y[piece].to(bench.flat.device)
        loss = float(cross_entropy(logits, targets, reduction="sum"))
    actual = targets.flatten().cpu().numpy()
    counted = actual != IGNORED_LABEL
    actual, guess = actual[counted], logits.flatten(0, -2).argmax(-1).cpu().numpy()[counted]
    correct, predicted, present = (
        np.bincount(which, minlength=logits.shape[-1]) for which in (actual[actual == guess], guess, actual)
    )
    return EvaluationSums(loss, correct, predicted, present)


def mean_loss(bench: FlatModule, weights: Tensor, samples: Samples) -> float:
    """The mean loss on some samples."""
    verdicts = [evaluate_chunk(bench, weights, samples, chunk) for chunk in range(chunks(samples))]
    return sum(verdicts[1:], verdicts[0]).mean_loss


def accuracy(bench: FlatModule, weights: Tensor, samples: Samples) -> float:
    """The share of right predictions on some samples."""
    verdicts = [evaluate_chunk(bench, weights, samples, chunk) for chunk in range(chunks(samples))]
    right, all_of_them = (sum(int(getattr(each, part).sum()) for each in verdicts) for part in ("correct", "actual"))
    return right / max(1, all_of_them)
