from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.selection import subset_objectives
from fedrelay.selection.subset_objectives import MinMaxScale, SubsetObjectives


def by_hand(vectors, choice):
    lengths = np.linalg.norm(vectors, axis=1)
    return sum(
        vectors[a] @ vectors[b] / (lengths[a] * lengths[b])
        for a, b in combinations(choice, 2)
        if lengths[a] and lengths[b]
    )


@pytest.mark.parametrize("most_compared", [0, 10_000])
@given(st.integers(1, 8), st.integers(1, 12), st.integers(0, 10**6))
@settings(max_examples=30)
def test_objectives_by_hand(most_compared, count, length, seed):
    rng = np.random.default_rng(seed)
    vectors, sizes = rng.normal(size=(9, length)), rng.integers(1, 50, 9)
    vectors[seed % 9] = 0
    choices = np.stack([rng.permutation(9)[:count] for _ in range(12)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subset_objectives, "MOST_COMPARED", most_compared)
        patch.setattr(subset_objectives, "_CHUNK", 100)
        found = SubsetObjectives.of(vectors, sizes).measure(choices)
    np.testing.assert_allclose(found[:, 0], [by_hand(vectors, choice) for choice in choices], atol=1e-12)
    assert found[:, 1].tolist() == [sizes[choice].sum() for choice in choices]


def test_models_of_any_length_that_point_the_same_way():
    vectors = np.outer([1.0, 2.0, 3.0, -1.0], [1.0, 2.0])
    found = SubsetObjectives.of(vectors, np.arange(4)).measure(np.array([[0, 1, 2], [0, 1, 3]]))
    np.testing.assert_allclose(found, [[3, 3], [-1, 4]], atol=1e-12)


def test_scores_by_hand():
    objectives = np.array([[1.0, 10], [3, 10], [2, 30]])
    scale = MinMaxScale.of(objectives)
    np.testing.assert_allclose(scale.score(objectives, (0.8, 0.2)), [0, 0.8, 0.6])
    np.testing.assert_allclose(scale.score(np.array([[5.0, 0]]), (0.8, 0.2)), [1.5])


def test_an_objective_that_is_the_same_for_all_counts_nothing():
    objectives = np.array([[7.0, 1], [7, 2]])
    np.testing.assert_allclose(MinMaxScale.of(objectives).score(objectives, (0.8, 0.2)), [0, 0.2])
    assert MinMaxScale.of(objectives[:1]).score(objectives[:1], (0.5, 0.5)).tolist() == [0]
