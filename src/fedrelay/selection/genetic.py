"""Genetic selection: a population of choices breeds until a good one is found.

Paper: M. Arafeh, A. Hammoud, M. Guizani, A. Mourad, H. Otrok, H. Ould-Slimane, Z. Dziong, C.-D. Wang, D. Wu.
WFSL: Warmup-based Federated Sequential Learning. 2025, section V and algorithm 1.

Rule: a chromosome is m different clients. The first ones are drawn cluster by cluster. In every generation a roulette
wheel draws parents by their score; each pair is crossed at one point with probability `crossover`, each gene is then
replaced by a random client with probability `mutation`, and children that hold a client twice or break the balance of
clusters are repaired. The whole population is one array.

Deviations: the text crosses where a random number "exceeds" the rate, which with 0.1 would be nine times in ten; here
it must be below. The best chromosome so far always stays in the population, and is the result. The wheel scales scores
by their own generation, as in the paper; to compare generations, the best is judged on the scale of the first. The last
parent of an odd population is carried over. Where there are few choices, all of them are looked at instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from fedrelay.selection.clusters import Clusters
from fedrelay.selection.fitness import Objectives, Scale

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW_CHOICES = 10_000
"""Up to so many choices, all are looked at."""


@dataclass(frozen=True)
class GeneticSettings:
    """How a population lives."""

    population: int = 200
    iterations: int = 50
    crossover: float = 0.1
    mutation: float = 0.05


@dataclass(frozen=True)
class SelectionProblem:
    """What is looked for: so many clients, taken from all clusters alike, with the best score.

    Clients are numbered by their place in the clusters.
    """

    objectives: Objectives
    clusters: Clusters
    count: int
    weights: tuple[float, float]
    """W1 for similarity, W2 for samples."""

    @classmethod
    def of(
        cls, vectors: Floats, sizes: Ints, labels: Ints, count: int, weights: tuple[float, float]
    ) -> SelectionProblem:
        """The task for clients with these vectors, samples and clusters; never more clients than there are."""
        clusters = Clusters.of(labels)
        objectives = Objectives.of(vectors[clusters.clients], sizes[clusters.clients])
        return cls(objectives, clusters, min(count, len(sizes)), weights)

    @property
    def choices(self) -> int:
        """How many choices of so many clients there are, balanced or not."""
        return math.comb(len(self.clusters.clients), self.count)


@dataclass(frozen=True)
class Generation:
    """The chromosomes of one moment, and the best so far with its score."""

    chromosomes: Ints
    best: Ints
    score: float


def search(task: SelectionProblem, breeding: GeneticSettings, rng: np.random.Generator) -> Iterator[Generation]:
    """Generations, the last of which has the result; a single one where all choices can be looked at."""
    return iter([exhaust(task)]) if task.choices <= FEW_CHOICES else evolve(task, breeding, rng)


def exhaust(task: SelectionProblem) -> Generation:
    """All balanced choices at once."""
    every = combinations(range(len(task.clusters.clients)), task.count)
    choices = np.fromiter(chain.from_iterable(every), np.int64, task.choices * task.count).reshape(-1, task.count)
    balanced = choices[task.clusters.balanced(choices)]
    objectives = task.objectives.measure(balanced)
    scores = Scale.of(objectives).score(objectives, task.weights)
    winner = int(np.argmax(scores))
    return Generation(balanced, balanced[winner], float(scores[winner]))


def evolve(task: SelectionProblem, breeding: GeneticSettings, rng: np.random.Generator) -> Iterator[Generation]:
    """The first generation, and one after every iteration; the score of the best never falls."""
    chromosomes = task.clusters.draw(breeding.population, task.count, rng)
    objectives = task.objectives.measure(chromosomes)
    yardstick = Scale.of(objectives)
    best, best_score = chromosomes[0], -math.inf
    for iteration in range(breeding.iterations + 1):
        if iteration:
            fitness = Scale.of(objectives).score(objectives, task.weights)
            chromosomes = _breed(chromosomes[_wheel(fitness, rng)], task.clusters, breeding, rng)
            chromosomes[0] = best
            objectives = task.objectives.measure(chromosomes)
        scores = yardstick.score(objectives, task.weights)
        winner = int(np.argmax(scores))
        if scores[winner] > best_score:
            best, best_score = chromosomes[winner].copy(), float(scores[winner])
        yield Generation(chromosomes, best, best_score)


def _wheel(fitness: Floats, rng: np.random.Generator) -> Ints:
    """Parents, as many as there are, drawn in proportion to their fitness; alike where nobody has any."""
    total = fitness.sum()
    return rng.choice(len(fitness), len(fitness), p=fitness / total if total > 0 else None)


def _breed(parents: Ints, clusters: Clusters, breeding: GeneticSettings, rng: np.random.Generator) -> Ints:
    """Children of parents 0 and 1, 2 and 3, …; the last of an odd number is its own child."""
    paired = len(parents) // 2 * 2
    children = _cross(parents[:paired], breeding.crossover, rng)
    mutated = rng.random(children.shape) < breeding.mutation
    children[mutated] = rng.integers(len(clusters.clients), size=int(mutated.sum()))
    return np.concatenate([clusters.repair(children, rng), parents[paired:]])


def _cross(parents: Ints, rate: float, rng: np.random.Generator) -> Ints:
    """Pairs exchange what lies behind a random point, each with such a probability."""
    count = parents.shape[1]
    pairs = len(parents) // 2
    cut = rng.integers(1, count, size=(pairs, 1)) if count > 1 else np.ones((pairs, 1), np.int64)
    crossed = rng.random((pairs, 1)) < rate
    swapped = np.repeat(crossed & (np.arange(count) >= cut), 2, axis=0)
    partners = parents.reshape(pairs, 2, count)[:, ::-1].reshape(parents.shape)
    return np.where(swapped, partners, parents)
