"""The spread of a metric over clients, against other computations of the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from fedrelay.metrics.client_spread import client_spread, rank_correlation


def test_exact_numbers():
    values = [0.5, 0.9, 0.7, 0.6, 0.8, 1.0, 0.4, 0.3, 0.2, 0.1, 0.0]
    sizes = list(range(11, 0, -1))
    found = client_spread([f"c{each}" for each in range(11)], values, sizes, higher_is_better=True)
    assert (found.clients, found.worst, found.worst_value) == (11, "c10", 0.0)
    assert found.mean == pytest.approx(0.5)
    assert found.std == pytest.approx(np.std(values))
    assert found.worst_decile == pytest.approx(0.05)  # the worst two of eleven
    assert found.by_size == pytest.approx({"small": 0.15, "medium": 0.7, "large": 0.7})


def test_of_errors_the_highest_is_the_worst():
    found = client_spread(["a", "b"], [0.2, 0.3], [5, 5], higher_is_better=False)
    assert (found.worst, found.worst_decile, found.size_correlation, found.by_size) == ("b", 0.3, None, {})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_rank_correlation_is_that_of_scipy(pairs):
    first, second = zip(*pairs, strict=True)
    found = rank_correlation(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)
