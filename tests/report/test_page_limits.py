from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.report.page_limits import evenly, significant


@settings(max_examples=60)
@given(st.integers(0, 3000), st.integers(2, 700))
def test_first_and_last_stay_and_nothing_comes_twice(length, most):
    chosen = evenly(range(length), most)
    assert len(chosen) == min(length, most)
    assert chosen == sorted(set(chosen))
    if length:
        assert (chosen[0], chosen[-1]) == (0, length - 1)


def test_one_or_none_of_many():
    assert evenly([1, 2, 3], 1) == [3]
    assert evenly([1, 2, 3], 0) == []


def test_digits():
    assert significant(0.123456789) == 0.123457
    assert significant(1234567.0, 3) == 1230000.0
    assert significant(12345678901) == 12345678901
    assert significant(float("nan")) is None
    assert significant(None) is None
