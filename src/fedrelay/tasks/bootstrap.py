"""The bootstrap over samples: a metric on random resamples of the samples that it was measured on.

Resamples are drawn with replacement, as many samples as there are. What they are depends on the client and the number
of its samples alone: models that are evaluated on the same samples have the same resamples, so their scores can be
subtracted resample by resample.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.rng import generator
from fedrelay.tasks.base import EvaluationSums, Summable, Task
from fedrelay.tasks.score_histogram import ScoreHistogram

RESAMPLES_IN_ALL = 100_000
MOST_RESAMPLES = 1000
FEWEST_RESAMPLES = 200
_SEED = 1
"""The same for all runs, so that their resamples are."""


def resamples_of_each(clients: int) -> int:
    """The number of resamples of each of so many clients; 0 where they are too many for useful intervals."""
    each = min(MOST_RESAMPLES, RESAMPLES_IN_ALL // max(1, clients))
    return each if each >= FEWEST_RESAMPLES else 0


def resample_counts(client: int, samples: int, resamples: int) -> NDArray[np.int64]:
    """How often each sample of a client is in each resample, `[resamples, samples]`."""
    return generator(_SEED, "bootstrap", client).multinomial(samples, np.full(samples, 1 / samples), size=resamples)


def resampled_scores(
    task: Task, metric: str, outputs: Tensor, targets: Tensor, counts: NDArray[np.int64]
) -> list[float | None]:
    """A metric on each resample; None where it is undefined.

    Args:
        task: The task.
        metric: The name of the metric, or `loss`.
        outputs: The outputs for all samples, as `Task.outputs_for_loss` returns them.
        targets: The targets.
        counts: What `resample_counts` returns.
    """
    with torch.no_grad():
        sums_of_each = [task._sums(outputs[[sample]], targets[[sample]]) for sample in range(len(targets))]
    if any(each.non_finite for each in sums_of_each):
        return [None] * len(counts)
    return [task.score(sums, metric) for sums in _weighted_sums(sums_of_each, counts)]


def _weighted_sums(sums_of_each: Sequence[EvaluationSums], counts: NDArray[np.int64]) -> list[EvaluationSums]:
    """For each resample, the sums over its samples."""
    losses = counts @ np.array([each.loss for each in sums_of_each])
    weights = counts @ np.array([each.weight for each in sums_of_each])
    values = {name: _weighted([each.values[name] for each in sums_of_each], counts) for name in sums_of_each[0].values}
    return [
        EvaluationSums(
            float(losses[place]), float(weights[place]), {name: each[place] for name, each in values.items()}
        )
        for place in range(len(counts))
    ]


def _weighted(values: Sequence[Summable], counts: NDArray[np.int64]) -> Sequence[Summable]:
    histograms = [value for value in values if isinstance(value, ScoreHistogram)]
    if len(histograms) == len(values):
        joined = ScoreHistogram.joined(histograms)
        return [joined.repeated(times) for times in counts]
    return list(np.tensordot(counts, np.stack([np.asarray(value) for value in values]), axes=1))
