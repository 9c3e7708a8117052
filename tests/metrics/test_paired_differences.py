from __future__ import annotations

import math

import pytest
from scipy.stats import t, ttest_1samp

from fedrelay.metrics.paired_differences import (
    PairedDifference,
    adjusted_p_values,
    differences_to_baseline,
    margin_of_mean,
    more_than_chance,
)


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


def test_the_interval_is_that_of_a_t_test():
    values = (0.3, 0.1, 0.4, -0.2)
    wanted = ttest_1samp(values, 0).confidence_interval(0.95)
    assert PairedDifference(values).interval == pytest.approx((wanted.low, wanted.high))
    assert PairedDifference((0.5,)).interval is None
    low, high = PairedDifference((0.1, 0.3)).interval
    assert (low, high) == pytest.approx((0.2 - 12.7062 * 0.1, 0.2 + 12.7062 * 0.1), rel=1e-4)  # two seeds tell little
    assert margin_of_mean(2.0, 16) == pytest.approx(t.ppf(0.975, 15) * 0.5)
    assert margin_of_mean(2.0, 1) == math.inf


def test_the_effect_size_is_corrected_for_few_seeds():
    spread = 0.02**0.5 / 2**0.5  # of 0.1, 0.2, 0.3
    plain = 0.2 / spread
    assert PairedDifference((0.1, 0.2, 0.3)).effect_size == pytest.approx(plain * math.gamma(1) / math.gamma(0.5))
    many = PairedDifference(tuple(0.1 + 0.01 * each for each in range(50)))
    assert many.effect_size == pytest.approx(
        many.mean / (many.standard_error * 50**0.5) * (1 - 3 / (4 * 49 - 1)), rel=1e-4
    )
    assert PairedDifference((0.1, 0.2)).effect_size is None
    assert PairedDifference((0.1, 0.1, 0.1)).effect_size is None


def test_adjusted_p_values_never_fall():
    medium, weak = PairedDifference((1.0, 1.2, 0.7)), PairedDifference((1.0, -0.5, 0.6))
    first, second, third = adjusted_p_values([medium, weak, medium])
    assert first == third == pytest.approx(3 * medium.p_value)
    assert second == pytest.approx(weak.p_value)
    assert adjusted_p_values([PairedDifference((5.0,))]) == [1.0]


def test_rounding_is_no_spread():
    same = PairedDifference((0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6))
    assert len(set(same.values)) > 1
    assert (same.deviation, same.effect_size, same.p_value) == (0, None, 0)


def test_methods_are_paired_on_the_seeds_that_both_have():
    found = differences_to_baseline(
        {1: 0.5, 2: 0.6, 3: math.nan, 4: 0.5},
        {"more": {4: 0.8, 1: 0.7, 2: 0.7, 3: 0.9}, "one": {2: 0.5}, "none": {7: 0.5}, "lost": {1: math.nan}},
    )
    assert found["more"].seeds == (4, 1, 2)
    assert found["more"].difference.values == pytest.approx((0.3, 0.2, 0.1))
    assert found["more"].adjusted_p_value == found["more"].difference.p_value  # only one difference can be tested
    assert (found["one"].seeds, found["one"].adjusted_p_value, found["one"].more_than_chance) == ((2,), None, False)
    assert found["none"].difference is found["lost"].difference is None


def test_more_methods_make_the_test_stricter():
    close = {1: 1.0, 2: 1.2, 3: 0.7}
    alone = differences_to_baseline(dict.fromkeys(close, 0.0), {"a": close})
    three = differences_to_baseline(dict.fromkeys(close, 0.0), {"a": close, "b": close, "c": close})
    assert alone["a"].more_than_chance
    assert not three["a"].more_than_chance
