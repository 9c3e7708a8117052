from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.grouping.distances import DISTANCES

U = np.array([0.7, 0.2, 0.1])
NEAR, FAR = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.2, 0.7])


@pytest.mark.parametrize(
    ("name", "far", "near"),
    [
        ("euclidean", 0.848528, 0.141421),
        ("cosine", 0.666667, 0.016849),
        ("norm-cosine", 0.545455, None),
        ("kl", 0.956308, 0.758229),
        ("gini", 0.640000, 0.505000),
        ("wasserstein", 0.0, 0.066667),
    ],
)
def test_golden_numbers(name, far, near):
    found = DISTANCES[name](U, np.stack([FAR, NEAR]))
    assert found[0] == pytest.approx(far, abs=5e-7)
    assert near is None or found[1] == pytest.approx(near, abs=5e-7)


@pytest.mark.parametrize("name", DISTANCES)
def test_the_choice_between_a_complement_and_a_near_duplicate(name):
    chosen = DISTANCES[name](U, np.stack([FAR, NEAR])).argmax()
    assert chosen == (1 if name == "wasserstein" else 0)


def test_zeros_have_a_distance():
    vectors = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert DISTANCES["cosine"](vectors[1], vectors).tolist() == [1, 0, 1]
    assert DISTANCES["cosine"](vectors[0], vectors).tolist() == [1, 1, 1]
    assert DISTANCES["norm-cosine"](vectors[0], vectors).tolist() == [1, 1, 1]
    np.testing.assert_allclose(DISTANCES["kl"](vectors[1], vectors[1:]), [1 - np.log(2), 1])


def test_which_vectors_a_distance_accepts():
    def fitting(**kind):
        return [name for name, distance in DISTANCES.items() if distance.accepts(**kind)]

    assert fitting(probabilities=True, non_negative=True) == list(DISTANCES)
    assert fitting(probabilities=False, non_negative=True) == ["euclidean", "cosine", "norm-cosine", "wasserstein"]
    assert fitting(probabilities=False, non_negative=False) == ["euclidean", "cosine", "wasserstein"]


@given(st.sampled_from(list(DISTANCES)), st.integers(2, 12), st.integers(0, 2**32))
def test_distances_are_symmetric_and_finite_in_either_precision(name, classes, seed):
    vectors = np.random.default_rng(seed).dirichlet(np.full(classes, 0.3), 6)
    there = [DISTANCES[name](u, vectors) for u in vectors]
    np.testing.assert_allclose(there, np.transpose(there), atol=1e-12)
    single = DISTANCES[name](vectors[0].astype(np.float32), vectors.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, there[0], atol=1e-5)
