"""Numbers of criteria: measures, arithmetic, targets, and what is missing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedrelay as fr
from fedrelay_reproduce import Measured, Number, Results, greatest, least, mean, rounds_to, speed_up, spread, time_to
from fedrelay_reproduce.criteria import MEASURES, updates_to

CURVE = [{"round": t, "accuracy": t / 10, "client_updates": 2 * t, "virtual_seconds": 5.0 * t} for t in range(1, 9)]
A = Measured("a", {"accuracy": 0.5, "loss": 2.0}, CURVE, rounds=8)
B = Measured("b", {"accuracy": 0.25, "loss": None}, CURVE[1:], rounds=8)
GONE = Measured("gone", {}, problem="seed 1 was not run")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (A.accuracy - B.accuracy, 0.25),
        (2 * -A.loss / 4 + 1, 0.0),
        (1 - 1 / (1 + A.loss), 2 / 3),
        (least(A.accuracy, 3, B.accuracy), 0.25),
        (greatest(1, 2), 2.0),
        (abs(B.accuracy - A.accuracy), 0.25),
        (mean(1, 2, 6), 3.0),
        (spread(1, 4, 2), 3.0),
        (rounds_to(A, 0.3), 3.0),
        (rounds_to(B, 0.1), 2.0),
        (updates_to(A, 0.3), 6.0),
        (time_to(A, 0.3), 15.0),
        (speed_up(A, B, 0.2), 1.0),
        (speed_up(A, B, A.accuracy), 1.0),
    ],
)
def test_values(found, expected):
    assert found.missing is None
    assert (found.soon, found.late) == (pytest.approx(expected, rel=1e-12), found.soon)


def test_a_target_that_was_never_reached_is_reached_later():
    assert rounds_to(A, 0.9) == Number(9.0, math.inf)
    assert time_to(A, 0.9) == Number(45.0, math.inf)
    assert rounds_to(Measured("c", {}, rounds=4), 0.5) == Number(5.0, math.inf)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (B.loss, "b has no loss"),
        (GONE.accuracy, "gone: seed 1 was not run"),
        (A.accuracy - GONE.accuracy, "gone: seed 1 was not run"),
        (1 - B.loss + GONE.accuracy, "b has no loss"),
        (rounds_to(GONE, 0.5), "gone: seed 1 was not run"),
        (rounds_to(GONE, B.loss), "b has no loss"),
        (1 / (A.accuracy - 0.5), "division by zero"),
        (least(A.accuracy, GONE.loss), "gone: seed 1 was not run"),
    ],
)
def test_what_is_missing_says_why(found, reason):
    assert found.missing == reason


def test_levels_are_in_percent_and_their_differences_in_points():
    accuracy = Measured("a", {"accuracy": 0.5, "transfers": 3.0}).accuracy
    assert {each.unit for each in (accuracy, accuracy - 0.1, 0.7 * accuracy, mean(accuracy, accuracy))} == {"%"}
    gain = accuracy - 0.7 * accuracy
    assert {each.unit for each in (gain, abs(gain), mean(gain, gain), 2 * gain - gain)} == {"points"}
    assert (accuracy / accuracy).unit == Measured("a", {"transfers": 3.0}).transfers.unit == ""


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="unknown measure 'acuracy' \\(did you mean 'accuracy'\\?\\)"):
        _ = A.acuracy
    with pytest.raises(fr.SpecError, match="unknown method or grouping 'fedsec' \\(did you mean 'fedseq'\\?\\)"):
        _ = Results({"fedseq": A})["fedsec"]


def test_no_measure_hides_behind_an_attribute():
    assert not set(MEASURES) & set(dir(A))


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_arithmetic_is_that_of_python(left, right):
    a, b = Measured("a", {"loss": left}).loss, Measured("b", {"loss": right}).loss
    found = [a + b, a - b, a * b, left + b, left - b, left * b]
    assert [each.soon for each in found] == 2 * [left + right, left - right, left * right]
    if right:
        assert (a / b).soon == (left / b).soon == left / right
