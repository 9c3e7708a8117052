"""Greedy groups: each group takes the client that complements it best, one after another.

Papers: R. Zaccone et al., FedSeq, ICPR 2022, algorithm 3; with true class histograms and `kl` it is the mediator rule
of M. Duan et al., Astraea, ICCD 2019.

Rule: a group starts with a random client and then takes the one with the highest τ(u, v) until it is closed, u being
the group's vector: the mean of its clients' vectors weighted by samples. Among equals the client with the lowest number
wins.

Deviations: `start: uniform` begins with the client that best complements equal classes, as the authors' code does.
`vector: mean` is the plain mean of the paper's text, `halving` the u ← (u + v)/2 of its algorithm. Where all scores are
negative the authors' code takes the first client; here the highest score wins whatever its sign. With more than
`candidates` clients left, only so many random ones are looked at for each place, or time would grow with K².
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.bounds import Bounds, settled
from fedrelay.grouping.candidates import Candidates
from fedrelay.grouping.distances import Distance
from fedrelay.grouping.profiles import Vectors
from fedrelay.routes.base import Groups

Start = Literal["random", "uniform"]
GroupVector = Literal["samples", "mean", "halving"]


def greedy_groups(
    vectors: Vectors,
    sizes: NDArray[np.int64],
    bounds: Bounds,
    rng: np.random.Generator,
    *,
    distance: Distance,
    start: Start = "random",
    vector: GroupVector = "samples",
    candidates: int = 4000,
) -> Groups:
    """Groups whose clients differ from each other."""
    free = Candidates(vectors, distance, candidates, rng)
    uniform = np.full(vectors.shape[1], 1 / vectors.shape[1])
    groups: list[list[int]] = []
    last: list[int] = []
    centre, held = uniform, 0
    while len(free):
        client = free.best(centre) if last or start == "uniform" else free.random(rng)
        free.take(client)
        last.append(client)
        held += int(sizes[client])
        share = _share(vector, len(last), int(sizes[client]), held)
        centre = vectors[client] if len(last) == 1 else (1 - share) * centre + share * vectors[client]
        if bounds.closes(len(last), held):
            groups.append(last)
            last, centre, held = [], uniform, 0
    return settled(groups, last, sizes, bounds)


def _share(vector: GroupVector, clients: int, samples: int, held: int) -> float:
    """The weight of the client that came last in its group's vector."""
    return {"samples": samples / held, "mean": 1 / clients, "halving": 0.5}[vector]
