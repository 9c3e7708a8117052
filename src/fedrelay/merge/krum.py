"""Krum and Multi-Krum: the models that are closest to their neighbours are taken, the others are not.

Paper: P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer. Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent. NeurIPS 2017.

Rule: a model's score is the sum of squared distances to its m − f − 2 nearest others, m being the number of models and
f that of attackers. Krum takes the model with the least score, Multi-Krum the mean of the `keep` models with the least
scores. The promise of the paper needs m ≥ 2f + 3. Of equal scores the first in the order of the plan wins.

Deviations: it joins models, not gradients. An f that leaves no neighbour to look at, m < f + 3, is refused; where m
grows with the rounds, the last round decides, and a score looks at one neighbour until then. So is a `keep` that leaves
nobody out. Models that are not finite are left out first and do not count in m; f stays. Where faults leave fewer
models than it needs, it takes the best of what there is, and its promise is void. Buffers are treated like parameters;
integer counters take no part in distances and the maximum of the models kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.merge.base import Merge, Merged, MergeInput
from fedrelay.merge.mean import Weights, counts, mean
from fedrelay.merge.robust import few, finite, stacks


class Krum(Merge):
    """The mean of the models in the thick of the crowd."""

    attackers: int = Field(1, ge=0, description="f, how many models may be arbitrary")
    keep: int = Field(1, ge=1, description="how many models are averaged; 1 is Krum, more is Multi-Krum")
    weights: Weights = Field("uniform", description="how much each model kept counts")

    def check(self, models: Callable[[], int]) -> None:
        """A score needs at least one neighbour, and somebody has to be left out."""
        count = models()
        if count < 3:
            raise SpecError(f"krum: judges models by their neighbours and needs at least 3 in a round; {few(count)}")
        if count < self.attackers + 3:
            raise SpecError(
                f"merge.attackers: {self.attackers} among {count} models leave no neighbour to judge a model by; "
                f"allowed: at most {count - 3} here"
            )
        if self.keep >= count:
            raise SpecError(
                f"merge.keep: {self.keep} of {count} models leave nobody out, which is the plain mean; "
                f"allowed: at most {count - 1} here"
            )

    def apply(self, home: MergeInput) -> Merged:
        """Score all models and average the best; the present model stays where nothing counts."""
        arrivals = finite(home.arrivals)
        found = scores([arrival.weights[: home.layout.counters] for arrival in arrivals], self.attackers)
        best = sorted(range(len(arrivals)), key=found.__getitem__)[: self.keep]
        kept = [arrivals[index] for index in sorted(best)]
        return Merged(mean(replace(home, arrivals=kept), counts(kept, self.weights)))


def scores(models: Sequence[Tensor], attackers: int) -> list[float]:
    """For each model the sum of squared distances to its nearest others."""
    neighbours = max(1, len(models) - attackers - 2)
    nearest = squared_distances(models).sort(1).values[:, 1 : neighbours + 1]
    return [score.item() for score in nearest.sum(1)]


def squared_distances(models: Sequence[Tensor]) -> Tensor:
    """Between all models, in double precision; taken from differences, so that equal models have distance 0."""
    square = torch.zeros(len(models), len(models), dtype=torch.float64)
    if len(models) > 1:
        above = torch.triu_indices(len(models), len(models), offset=1).unbind()
        square[above] = torch.stack([torch.pdist(stack).square() for stack in stacks(models)]).sum(0)
    return square + square.T
