from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.metrics.forgetting import backward_transfer, forgetting, start_point_spread

NAN = float("nan")
GOLDEN = [[0.9, NAN, NAN], [0.7, 0.8, NAN], [0.6, 0.75, 0.5]]


def test_golden_numbers():
    assert backward_transfer(GOLDEN) == pytest.approx(-0.175, abs=1e-12)
    np.testing.assert_allclose(forgetting(GOLDEN), [0.30, 0.05], atol=1e-12)


def test_a_single_hop_cannot_forget():
    assert backward_transfer([[0.9]]) is None
    assert forgetting([[0.9]]) is None
    assert start_point_spread([0.9]) is None
    assert start_point_spread([]) is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
@settings(max_examples=60)
def test_a_frozen_model_forgets_nothing(accuracies):
    matrix = np.tile(accuracies, (len(accuracies), 1))
    assert backward_transfer(matrix) == 0
    assert not forgetting(matrix).any()


def test_the_best_moment_counts_not_the_first():
    matrix = [[0.5, 0, 0], [0.9, 0.5, 0], [0.6, 0.8, 0.5]]
    assert backward_transfer(matrix) == pytest.approx((0.1 + 0.3) / 2)
    np.testing.assert_allclose(forgetting(matrix), [0.3, -0.3])


def test_what_lies_above_the_diagonal_does_not_matter():
    low, high = np.tril(np.full((4, 4), 0.5)), np.triu(np.ones((4, 4)), 1)
    assert backward_transfer(low + high) == backward_transfer(low) == 0
    assert forgetting(low + high).tolist() == [0, 0, 0]


def test_spread_over_starts():
    assert start_point_spread([0.5, 0.7]) == pytest.approx(0.1)
    assert start_point_spread([0.5, 0.5, 0.5]) == 0


@pytest.mark.parametrize("shape", [(0, 0), (2, 3), (3,)])
def test_only_square_matrices(shape):
    with pytest.raises(ValueError, match="a square matrix with one row per hop"):
        backward_transfer(np.zeros(shape))


def test_a_gap_below_the_diagonal_is_refused():
    with pytest.raises(ValueError, match="a non-finite value"):
        forgetting([[0.9, NAN], [NAN, 0.5]])
