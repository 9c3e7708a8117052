from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from fedrelay.grouping import balanced_assignment_solver
from fedrelay.grouping.balanced_assignment_solver import DistinctPoints, balanced_assignment


def least_cost(vectors, centres, capacity):
    """The optimum, by linear assignment with every cluster repeated."""
    costs = np.repeat(np.square(vectors[:, None] - centres).sum(axis=2) / 2, capacity, axis=1)
    return costs[linear_sum_assignment(costs)].sum()


def assigned(vectors, centres, capacity):
    cloud = DistinctPoints.of(vectors)
    start = np.arange(len(vectors)) % len(centres)
    return balanced_assignment(cloud, centres - vectors.mean(axis=0), capacity, start)


def cost(vectors, centres, labels):
    return np.square(vectors - centres[labels]).sum() / 2


def outcome(vectors, centres, capacity):
    """How many each centre got, and what it cost."""
    labels = assigned(vectors, centres, capacity)
    return np.bincount(labels, minlength=len(centres)).tolist(), cost(vectors, centres, labels)


def optimum(vectors, centres, capacity):
    """The same of an assignment that is proved to be the best."""
    least = pytest.approx(least_cost(vectors, centres, capacity), rel=1e-9, abs=1e-12)
    return [capacity] * len(centres), least


populations = st.sampled_from(["spread", "skewed", "one class each", "nearly one class each", "a line", "counts"])


def population(kind, points, seed):
    rng = np.random.default_rng(seed)
    pure = np.eye(5)[rng.integers(0, 5, points)]
    return {
        "spread": lambda: rng.normal(size=(points, 3)),
        "skewed": lambda: rng.dirichlet(np.full(6, 0.2), points),
        "one class each": lambda: pure,
        "nearly one class each": lambda: pure + rng.normal(0, 1e-4, pure.shape),
        "a line": lambda: rng.normal(size=(points, 1)),
        "counts": lambda: np.floor(rng.lognormal(4, 1.5, (points, 1)) * rng.dirichlet(np.full(6, 0.3), points)),
    }[kind]()


@given(populations, st.integers(2, 12), st.integers(1, 9), st.integers(0, 2**32))
@settings(max_examples=60)
def test_few_clusters(kind, clusters, capacity, seed):
    vectors = population(kind, clusters * capacity, seed)
    problem = vectors, np.random.default_rng(seed + 1).permutation(vectors)[:clusters], capacity
    assert outcome(*problem) == optimum(*problem)


@given(populations, st.integers(17, 40), st.integers(1, 8), st.integers(0, 2**32))
@settings(max_examples=40)
def test_many_clusters(kind, clusters, capacity, seed):
    vectors = population(kind, clusters * capacity, seed)
    means = vectors.reshape(capacity, clusters, -1).mean(axis=0)
    for centres in (means, np.random.default_rng(seed).permutation(vectors)[:clusters]):
        assert outcome(vectors, centres, capacity) == optimum(vectors, centres, capacity)


def test_bad_prices_cost_time_but_not_the_optimum(monkeypatch):
    monkeypatch.setattr(balanced_assignment_solver, "_market_prices", lambda problem: np.zeros(len(problem.centres)))
    vectors = population("a line", 200, 0)
    problem = vectors, vectors.reshape(5, 40, -1).mean(axis=0), 5
    assert outcome(*problem) == optimum(*problem)


def test_beyond_large_the_gap_is_proved(monkeypatch):
    monkeypatch.setattr(balanced_assignment_solver, "LARGE", 0)
    for kind in ("spread", "skewed", "nearly one class each"):
        vectors = population(kind, 400, 1)
        centres = vectors.reshape(10, 40, -1).mean(axis=0)
        found, best = cost(vectors, centres, assigned(vectors, centres, 10)), least_cost(vectors, centres, 10)
        assert best - 1e-9 <= found <= (1 + balanced_assignment_solver.GAP) * best


def test_a_large_problem_that_stops_early_is_balanced_and_no_worse(monkeypatch):
    monkeypatch.setattr(balanced_assignment_solver, "LARGE", 0)
    monkeypatch.setattr(balanced_assignment_solver, "FLOWS", 1)
    monkeypatch.setattr(balanced_assignment_solver, "_market_prices", lambda problem: np.zeros(len(problem.centres)))
    vectors = population("a line", 200, 0)
    centres = vectors.reshape(5, 40, -1).mean(axis=0)
    labels = assigned(vectors, centres, 5)
    assert np.bincount(labels).tolist() == [5] * 40
    at_first, best = cost(vectors, centres, np.arange(200) % 40), least_cost(vectors, centres, 5)
    assert best < cost(vectors, centres, labels) < at_first


def test_small_costs_are_not_lost_beside_large_ones():
    far = np.array([[0.0, 5.0], [1e6, 5.0]])
    near = np.array([[0.0, 1e-3], [0.0, -1e-3]])
    vectors = np.concatenate([far, near])
    centres = np.array([[0.0, 1.0], [0.0, -1.0], [1e6, 5.0], [0.0, 5.0]])
    labels = assigned(vectors, centres, 1)
    assert labels.tolist() == [3, 2, 0, 1]


def test_equal_points_are_dealt_out():
    vectors = np.repeat(np.eye(2), 6, axis=0)
    labels = assigned(vectors, np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]]), 3)
    assert np.bincount(labels[:6], minlength=4).tolist() == [3, 3, 0, 0]
    assert np.bincount(labels[6:], minlength=4).tolist() == [0, 0, 3, 3]


def test_identical_vectors_or_centres_give_any_balanced_split():
    assert sorted(assigned(np.ones((6, 2)), np.zeros((3, 2)), 2)) == [0, 0, 1, 1, 2, 2]
    assert np.bincount(assigned(np.ones((60, 2)), np.zeros((30, 2)), 2)).tolist() == [2] * 30
    random = np.random.default_rng(0).normal(size=(60, 2))
    assert np.bincount(assigned(random, np.zeros((30, 2)), 2)).tolist() == [2] * 30
