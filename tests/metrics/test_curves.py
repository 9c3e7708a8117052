from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.metrics.curves import mean_of_last, mean_std, rounds_to_target, speed_up, target_scores

ROUNDS = (1, 2, 3, 4, 5)
ACCURACIES = (0.1, 0.5, 0.66, 0.7, 0.69)
share = st.floats(0, 1)


def test_rounds_to_shares_of_a_reference() -> None:
    targets = target_scores(0.85)
    assert targets == {0.7: 0.595, 0.8: 0.68, 0.9: 0.765}
    reached = {of: rounds_to_target(ROUNDS, ACCURACIES, target) for of, target in targets.items()}
    assert reached == {0.7: 3, 0.8: 4, 0.9: None}


def test_an_accuracy_of_exactly_the_target_reaches_it() -> None:
    assert rounds_to_target([10, 20], [0.5, 0.72], target_scores(0.9, shares=(0.8,))[0.8]) == 20


def test_errors_reach_targets_from_above() -> None:
    targets = target_scores(0.6, (0.5, 0.75), higher_is_better=False)
    assert targets == {0.5: 1.2, 0.75: 0.8}
    errors = [3.0, None, 1.2, 0.9]
    reached = {of: rounds_to_target([1, 2, 3, 4], errors, goal, higher_is_better=False) for of, goal in targets.items()}
    assert reached == {0.5: 3, 0.75: None}


def test_without_a_reference_there_are_no_targets() -> None:
    assert target_scores(None) == {}


def test_the_round_is_that_of_the_evaluation() -> None:
    assert rounds_to_target([0, 10, 20], [0.1, 0.4, 0.6], 0.4) == 10
    assert rounds_to_target([], [], 0.4) is None
    assert rounds_to_target([1, 2], [float("nan"), 0.4], 0.4) == 2


@given(st.lists(share, max_size=30), share, share)
@settings(deadline=None, max_examples=60)
def test_a_higher_target_is_never_reached_sooner(curve: list[float], one: float, other: float) -> None:
    rounds = range(1, len(curve) + 1)
    low = rounds_to_target(rounds, curve, min(one, other))
    high = rounds_to_target(rounds, curve, max(one, other))
    assert high is None or (low is not None and low <= high)


def test_speed_up() -> None:
    assert speed_up(470, 34) == pytest.approx(13.8235, abs=1e-4)
    assert speed_up(10, 20) == 0.5
    assert speed_up(None, 20) is None
    assert speed_up(10, None) is None
    assert speed_up(0, 0) is None


def test_mean_of_last() -> None:
    assert mean_of_last(ACCURACIES, 2) == pytest.approx(0.695)
    assert mean_of_last(ACCURACIES, 1) == 0.69
    assert mean_of_last(ACCURACIES, 100) == pytest.approx(0.53)


@given(st.lists(share, min_size=2, max_size=10))
@settings(deadline=None, max_examples=60)
def test_mean_and_sample_deviation(values: list[float]) -> None:
    assert mean_std(values) == pytest.approx((statistics.mean(values), statistics.stdev(values)))


def test_one_seed_has_no_spread() -> None:
    assert mean_std([0.5]) == (0.5, 0.0)


def test_impossible_curves_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds and 1 scores do not match"):
        rounds_to_target([1, 2], [0.5], 0.4)
    with pytest.raises(ValueError, match="last must be at least 1, got 0"):
        mean_of_last(ACCURACIES, 0)
    with pytest.raises(ValueError, match="cannot average an empty curve"):
        mean_of_last([], 3)
    with pytest.raises(ValueError, match="an empty list of values"):
        mean_std([])
