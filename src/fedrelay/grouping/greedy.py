"""Greedy groups: each group repeatedly takes the client that differs most from it.

Papers: R. Zaccone et al., FedSeq, ICPR 2022, algorithm 3. With class histograms and `kl` it is the mediator rule of M.
Duan et al., Astraea, ICCD 2019.

Rule: a group starts with a random client. It then takes the client with the largest τ(u, v) until it is complete, where
u is the group's vector: the mean of its clients' vectors, weighted by samples. Ties go to the client with the lowest
number.

Deviations: `start: uniform` starts with the client with the largest distance from uniform classes, as in the authors'
code. `vector: mean` is the plain mean of the paper's text, `halving` the u ← (u + v)/2 of its algorithm. If all scores
are negative, the authors' code takes the first client; here the largest score wins regardless of its sign. If more than
`candidates` clients are left, only that many random ones are compared for each step, because time would grow with K².
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.candidate_pool import CandidatePool
from fedrelay.grouping.distances import Distance
from fedrelay.grouping.group_filling import GroupSizeBounds, distribute_rest
from fedrelay.grouping.profiles import Vectors
from fedrelay.routes.base import Groups

Start = Literal["random", "uniform"]
GroupVector = Literal["samples", "mean", "halving"]


def greedy_groups(
    vectors: Vectors,
    sizes: NDArray[np.int64],
    bounds: GroupSizeBounds,
    rng: np.random.Generator,
    *,
    distance: Distance,
    start: Start = "random",
    vector: GroupVector = "samples",
    candidates: int = 4000,
) -> Groups:
    """Groups whose clients differ from each other; groups contain row numbers of `vectors`."""
    free = CandidatePool(vectors, distance, candidates, rng)
    uniform = np.full(vectors.shape[1], 1 / vectors.shape[1])
    groups: list[list[int]] = []
    last: list[int] = []
    centre, samples = uniform, 0
    while len(free):
        client = free.best(centre) if last or start == "uniform" else free.random(rng)
        free.take(client)
        last.append(client)
        samples += int(sizes[client])
        share = {"samples": int(sizes[client]) / samples, "mean": 1 / len(last), "halving": 0.5}[vector]
        centre = vectors[client] if len(last) == 1 else (1 - share) * centre + share * vectors[client]
        if bounds.complete(len(last), samples):
            groups.append(last)
            last, centre, samples = [], uniform, 0
    return distribute_rest(groups, last, sizes, bounds)
