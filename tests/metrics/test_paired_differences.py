from __future__ import annotations

import math

import pytest
from scipy.stats import ttest_1samp

from fedrelay.metrics.paired_differences import PairedDifference, more_than_chance


def test_the_p_value_is_that_of_a_t_test():
    values = (0.3, 0.1, 0.4, -0.2)
    assert PairedDifference(values).p_value == pytest.approx(ttest_1samp(values, 0).pvalue)


def test_without_spread_any_difference_is_certain():
    assert PairedDifference((0.5, 0.5)).p_value == 0
    assert PairedDifference((0.0, 0.0)).p_value == 1


def test_one_seed_tells_nothing():
    one = PairedDifference((5.0,))
    assert one.standard_error == math.inf
    assert more_than_chance([one]) == [False]


def test_more_differences_need_more_evidence():
    medium = PairedDifference((1.0, 1.2, 0.7))  # p = 0.022
    assert more_than_chance([medium]) == [True]
    assert more_than_chance([medium, medium, medium]) == [False, False, False]
    strong = PairedDifference((1.0, 1.001, 1.0))
    assert more_than_chance([medium, strong]) == [True, True]  # Holm: the second one is tested at 5 %
    assert more_than_chance([]) == []
