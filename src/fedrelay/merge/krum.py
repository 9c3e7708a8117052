"""Krum and Multi-Krum: keep the models that are closest to their neighbours.

Paper: P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer. Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent. NeurIPS 2017.

Rule: a model's score is the sum of squared distances to its m − f − 2 nearest others, where m is the number of models
and f the number of attackers. Krum takes the model with the lowest score, Multi-Krum the mean of the `keep` models with
the lowest scores. The paper's guarantee needs m ≥ 2f + 3. Ties go to the first model in the order of the plan.

Deviations: it merges models, not gradients. An f that leaves no neighbour, m < f + 3, is refused, and so is a `keep`
that keeps all models. If m grows with the rounds, the last round decides, and earlier scores use one neighbour. Models
with non-finite values are left out first and do not count in m; f does not change. If faults leave fewer models than
Krum needs, it takes the best of them, without the guarantee. Buffers are treated like parameters. Integer counters do
not count in distances and take the maximum of the models kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.merge.base import Merge, MergeInput, MergeResult
from fedrelay.merge.mean import Weights, mean_of_arrivals, route_weights
from fedrelay.merge.robust_statistics import coordinate_blocks, finite_arrivals, too_few_models


class Krum(Merge):
    """The mean of the models with the closest neighbours."""

    attackers: int = Field(1, ge=0, description="f, the number of models that may be arbitrary")
    keep: int = Field(1, ge=1, description="number of models that are averaged: 1 is Krum, more is Multi-Krum")
    weights: Weights = Field("uniform", description="weight of each kept model: by its samples, or uniform")

    def check_arrival_count(self, count_arrivals_in_last_round: Callable[[], int]) -> None:
        count = count_arrivals_in_last_round()
        if count < 3:
            raise SpecError(f"krum: needs at least 3 models in a round; {too_few_models(count)}")
        if count < self.attackers + 3:
            raise SpecError(
                f"merge.attackers: {self.attackers} of {count} models leave no neighbour to compare a model with; "
                f"set at most {count - 3}"
            )
        if self.keep >= count:
            raise SpecError(
                f"merge.keep: {self.keep} of {count} models keeps all of them, which is the plain mean; "
                f"set at most {count - 1}"
            )

    def apply(self, inputs: MergeInput) -> MergeResult:
        arrivals = finite_arrivals(inputs.arrivals)
        scores = krum_scores([arrival.weights[: inputs.layout.float_size] for arrival in arrivals], self.attackers)
        best = sorted(range(len(arrivals)), key=scores.__getitem__)[: self.keep]
        kept = [arrivals[index] for index in sorted(best)]
        return MergeResult(mean_of_arrivals(replace(inputs, arrivals=kept), route_weights(kept, self.weights)))


def krum_scores(models: Sequence[Tensor], attackers: int) -> list[float]:
    """For each model, the sum of squared distances to its nearest neighbours."""
    neighbours = max(1, len(models) - attackers - 2)
    nearest = squared_distances(models).sort(1).values[:, 1 : neighbours + 1]
    return [score.item() for score in nearest.sum(1)]


def squared_distances(models: Sequence[Tensor]) -> Tensor:
    """Squared distances between all models, in float64. Equal models have distance exactly 0."""
    square = torch.zeros(len(models), len(models), dtype=torch.float64)
    if len(models) > 1:
        above = torch.triu_indices(len(models), len(models), offset=1).unbind()
        square[above] = torch.stack([torch.pdist(block).square() for block in coordinate_blocks(models)]).sum(0)
    return square + square.T
