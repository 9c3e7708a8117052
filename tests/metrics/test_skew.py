from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.metrics import skew
from fedrelay.metrics.skew import (
    balance_ratio,
    covered_classes,
    cpd,
    cpd_matrix,
    group_histograms,
    group_quality,
    median_cpd,
    pairwise_cpd,
)

counts = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any)


def shares(histogram: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(histogram) / sum(histogram)


def test_cpd_golden_number() -> None:
    assert cpd((1, 0), (0, 1)) == pytest.approx(1.264241, abs=5e-7)
    assert cpd((0.5, 0.5), (1, 0), gamma=1.0) == pytest.approx((1 - math.exp(-2)) * 0.5)


@given(counts, counts, st.floats(0.01, 10))
@settings(deadline=None, max_examples=60)
def test_cpd_is_the_squared_mmd(left: list[int], right: list[int], gamma: float) -> None:
    p, q = shares(left), shares(right)
    kernel = np.exp(-2 * gamma * (1 - np.eye(4)))
    assert cpd(p, q, gamma) == pytest.approx((p - q) @ kernel @ (p - q), abs=1e-12)
    assert cpd(p, q, gamma) == cpd(q, p, gamma)
    assert 0 <= cpd(p, q, gamma) <= 2 * (1 - math.exp(-2 * gamma)) + 1e-12
    assert (cpd(p, q, gamma) == 0) == np.array_equal(p, q)


def test_pairs_and_their_median() -> None:
    histograms = [[10, 0], [0, 5], [0, 0], [3, 3]]
    gap = 1 - math.exp(-1)
    np.testing.assert_allclose(pairwise_cpd(histograms), [2 * gap, 0.5 * gap, 0.5 * gap])
    assert median_cpd(histograms) == pytest.approx(0.5 * gap)
    assert median_cpd([[1, 2], [2, 4], [5, 10]]) == 0


def test_without_a_pair_there_is_no_median() -> None:
    assert median_cpd([[1, 2]]) is None
    assert median_cpd([[1, 2], [0, 0]]) is None
    assert median_cpd(np.zeros((0, 3))) is None


def test_very_many_are_sampled_and_always_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    histograms = np.random.default_rng(0).integers(0, 30, (300, 5))
    exact = median_cpd(histograms)
    monkeypatch.setattr(skew, "MAX_PAIRS", 20_000)
    sampled = median_cpd(histograms)
    assert len(pairwise_cpd(histograms)) == 20_000
    assert sampled == median_cpd(histograms) != exact
    assert sampled == pytest.approx(exact, rel=0.03)
    first, second = skew._pairs(300)
    assert not (first == second).any()


def test_balance_and_coverage() -> None:
    assert balance_ratio([4, 2, 8]) == 0.25
    assert balance_ratio([4, 0, 8]) == 0
    assert balance_ratio([0, 0]) == 0
    assert covered_classes([4, 0, 8, 0]) == 0.5
    assert covered_classes([1, 1]) == 1


def test_the_matrix_holds_all_pairs() -> None:
    histograms = np.array([[10, 0], [0, 5], [3, 3], [0, 0]])
    matrix = cpd_matrix(histograms)
    np.testing.assert_allclose(matrix[np.triu_indices(3, 1)], pairwise_cpd(histograms))
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(np.diag(matrix), 0, atol=1e-15)
    assert np.isfinite(matrix).all()


def test_quality_of_groups() -> None:
    histograms = np.array([[4, 0], [0, 2], [6, 0], [0, 0], [2, 2]])
    groups = [(0, 1), (2,), (4,)]
    quality = group_quality(groups, histograms, histograms.sum(axis=1))
    assert group_histograms(groups, histograms).tolist() == [[4, 2], [6, 0], [2, 2]]
    assert quality.median_cpd == median_cpd([[4, 2], [6, 0], [2, 2]])
    assert quality.balance_ratio == pytest.approx((0.5 + 0 + 1) / 3)
    assert quality.covered_classes == pytest.approx((1 + 0.5 + 1) / 3)
    assert quality.clients.tolist() == [2, 1, 1]
    assert quality.samples.tolist() == [6, 6, 4]
    assert group_quality(groups[:1], histograms, histograms.sum(axis=1)).median_cpd is None
