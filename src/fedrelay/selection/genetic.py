"""Genetic selection: a population of client subsets evolves towards a good one.

Paper: M. Arafeh, A. Hammoud, M. Guizani, A. Mourad, H. Otrok, H. Ould-Slimane, Z. Dziong, C.-D. Wang, D. Wu.
WFSL: Warmup-based Federated Sequential Learning. 2025, section V and algorithm 1.

Rule: a chromosome is a subset of m clients. The first generation is drawn cluster by cluster. In every generation,
roulette-wheel selection draws parents by their score. Each pair is crossed at one point with probability `crossover`,
then each gene is replaced by a random client with probability `mutation`. Children that contain a client twice or are
not balanced over the clusters are repaired. The whole population is one array.

Deviations: the paper's text crosses if a random number "exceeds" the rate, which would be in nine of ten cases at 0.1;
here it must be below the rate. The best chromosome so far always stays in the population, and is the result. The wheel
scales scores within their generation, as in the paper; to compare generations, the best is scored on the scale of the
first. The last parent of an odd population is copied. If there are few subsets, all of them are tried instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from fedrelay.selection.cluster_balance import Balance, Clusters
from fedrelay.selection.subset_objectives import MinMaxScale, SubsetObjectives

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW_SUBSETS = 10_000
"""If there are at most this many subsets, all of them are tried."""


@dataclass(frozen=True)
class GeneticSettings:
    """The parameters of the genetic algorithm."""

    population: int = 200
    iterations: int = 50
    crossover: float = 0.1
    mutation: float = 0.05


@dataclass(frozen=True)
class SelectionProblem:
    """Find the subset of `count` clients with the best score that is balanced over the clusters.

    Clients are numbered by their position in `clusters`.
    """

    objectives: SubsetObjectives
    clusters: Clusters
    count: int
    weights: tuple[float, float]
    """W1 for similarity, W2 for samples."""

    @classmethod
    def of(
        cls,
        vectors: Floats,
        sizes: Ints,
        labels: Ints,
        count: int,
        weights: tuple[float, float],
        balance: Balance = "strict",
    ) -> SelectionProblem:
        """The problem for clients with these vectors, sample counts and cluster labels."""
        clusters = Clusters.of(labels, balance)
        objectives = SubsetObjectives.of(vectors[clusters.clients], sizes[clusters.clients])
        return cls(objectives, clusters, min(count, len(sizes)), weights)

    @property
    def subsets(self) -> int:
        """The number of subsets of `count` clients, balanced or not."""
        return math.comb(len(self.clusters.clients), self.count)


@dataclass(frozen=True)
class Generation:
    """The chromosomes of one generation, and the best so far with its score."""

    chromosomes: Ints
    best: Ints
    score: float


def search(problem: SelectionProblem, settings: GeneticSettings, rng: np.random.Generator) -> Iterator[Generation]:
    """Yield generations; the last one has the result. If there are few subsets, there is one generation with all."""
    return iter([try_all(problem)]) if problem.subsets <= FEW_SUBSETS else evolve(problem, settings, rng)


def try_all(problem: SelectionProblem) -> Generation:
    """A generation of all balanced subsets."""
    every = chain.from_iterable(combinations(range(len(problem.clusters.clients)), problem.count))
    subsets = np.fromiter(every, np.int64, problem.subsets * problem.count).reshape(-1, problem.count)
    balanced = subsets[problem.clusters.balanced(subsets)]
    objectives = problem.objectives.measure(balanced)
    scores = MinMaxScale.of(objectives).score(objectives, problem.weights)
    winner = int(np.argmax(scores))
    return Generation(balanced, balanced[winner], float(scores[winner]))


def evolve(problem: SelectionProblem, settings: GeneticSettings, rng: np.random.Generator) -> Iterator[Generation]:
    """Yield the first generation and one after every iteration. The best score never falls."""
    chromosomes = problem.clusters.draw(settings.population, problem.count, rng)
    objectives = problem.objectives.measure(chromosomes)
    first_scale = MinMaxScale.of(objectives)
    best, best_score = chromosomes[0], -math.inf
    for iteration in range(settings.iterations + 1):
        if iteration:
            fitness = MinMaxScale.of(objectives).score(objectives, problem.weights)
            chromosomes = _offspring(chromosomes[_roulette_wheel(fitness, rng)], problem.clusters, settings, rng)
            chromosomes[0] = best
            objectives = problem.objectives.measure(chromosomes)
        scores = first_scale.score(objectives, problem.weights)
        winner = int(np.argmax(scores))
        if scores[winner] > best_score:
            best, best_score = chromosomes[winner].copy(), float(scores[winner])
        yield Generation(chromosomes, best, best_score)


def _roulette_wheel(fitness: Floats, rng: np.random.Generator) -> Ints:
    """Draw as many parents as there are, in proportion to fitness; uniformly if all fitness is 0."""
    total = fitness.sum()
    return rng.choice(len(fitness), len(fitness), p=fitness / total if total > 0 else None)


def _offspring(parents: Ints, clusters: Clusters, settings: GeneticSettings, rng: np.random.Generator) -> Ints:
    """The children of parents 0 and 1, 2 and 3, …; the last of an odd number is copied."""
    paired = len(parents) // 2 * 2
    children = _crossover(parents[:paired], settings.crossover, rng)
    mutated = rng.random(children.shape) < settings.mutation
    children[mutated] = rng.integers(len(clusters.clients), size=int(mutated.sum()))
    return np.concatenate([clusters.repair(children, rng), parents[paired:]])


def _crossover(parents: Ints, rate: float, rng: np.random.Generator) -> Ints:
    """Each pair swaps its genes after a random point, with probability `rate`."""
    count = parents.shape[1]
    pairs = len(parents) // 2
    cut = rng.integers(1, count, size=(pairs, 1)) if count > 1 else np.ones((pairs, 1), np.int64)
    crossed = rng.random((pairs, 1)) < rate
    swapped = np.repeat(crossed & (np.arange(count) >= cut), 2, axis=0)
    partners = parents.reshape(pairs, 2, count)[:, ::-1].reshape(parents.shape)
    return np.where(swapped, partners, parents)
