from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr, stdtrit

from fedrelay.metrics.student_t import two_sided_p_value, two_sided_quantile

FREEDOM = st.integers(1, 10_000)


@given(st.floats(1e-6, 1e6), FREEDOM)
def test_p_values_are_those_of_scipy(t, freedom):
    assert two_sided_p_value(t, freedom) == pytest.approx(2 * stdtr(freedom, -t), rel=1e-9, abs=1e-290)
    assert two_sided_p_value(-t, freedom) == two_sided_p_value(t, freedom)


@given(st.floats(1e-4, 0.999), FREEDOM)
def test_quantiles_are_those_of_scipy(level, freedom):
    assert two_sided_quantile(level, freedom) == pytest.approx(stdtrit(freedom, 1 - level / 2), rel=1e-8)


def test_no_difference_and_an_infinite_one():
    assert two_sided_p_value(0.0, 2) == 1.0
    assert two_sided_p_value(float("inf"), 2) == 0.0
