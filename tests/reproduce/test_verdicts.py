"""The rules of verdicts, with exact numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay_reproduce import Check, Condition, Measured, all_of, any_of, least, negated, rounds_to, speed_up
from fedrelay_reproduce.criteria import Operand, Sign, missing
from fedrelay_reproduce.verdicts import Verdict, decide, judge, margin, met


def curve(*accuracies: float) -> list[dict[str, float]]:
    return [{"round": t, "accuracy": accuracy} for t, accuracy in enumerate(accuracies, start=1)]


@pytest.mark.parametrize(
    ("sign", "left", "right", "expected"),
    [(">=", 3, 1, 2), (">", 1, 3, -2), ("<=", 1, 3, 2), ("<", 3, 1, -2), ("==", 2, 2, 0), ("==", 1, 3, -2)],
)
def test_margins(sign, left, right, expected):
    assert margin(sign, left, right) == expected


@pytest.mark.parametrize(
    ("sign", "margins", "verdict"),
    [
        (">=", [0.1], "holds"),
        (">=", [-0.1], "does not hold"),
        (">=", [0.0], "holds"),
        (">", [0.0], "does not hold"),
        ("<=", [0.0], "holds"),
        ("<", [0.0], "does not hold"),
        ("==", [0.0, 0.0], "holds"),
        ("==", [0.0, -1e-9], "does not hold"),
        (">=", [], "inconclusive"),
        # mean 2, deviation 1, standard error 1/√3 = .577
        (">", [1.0, 2.0, 3.0], "holds"),
        ("<", [-1.0, -2.0, -3.0], "does not hold"),
        # mean .5, deviation √4.5, standard error 1.5
        (">", [2.0, -1.0], "inconclusive"),
        (">", [-2.0, 1.0], "inconclusive"),
        # mean 1, deviation √2, standard error 1: less than two of them
        (">", [2.0, 0.0], "inconclusive"),
        # mean 2, deviation √2, standard error 1: not smaller, so it is decided
        (">", [3.0, 1.0], "holds"),
        (">=", [0.0, 0.0, 0.0], "holds"),
        (">", [0.0, 0.0, 0.0], "does not hold"),
    ],
)
def test_one_check(sign, margins, verdict):
    assert decide(sign, margins)[0] == verdict


def test_the_reason_of_doubt_is_given():
    assert decide(">", [2.0, -1.0])[1] == "the margin is smaller than two of its standard errors"


def check(left: Operand, sign: Sign, right: Operand) -> Check:
    return Check("some check", left, sign, right)


def verdict(*seeds: Condition) -> Verdict:
    """The verdict on one condition, given for each seed."""
    return judge([[condition] for condition in seeds])[0]


def test_margins_are_taken_seed_by_seed():
    verdict, (found,) = judge([[check(0.75 - 0.5, ">=", 0.05)], [check(0.5 - 0.5, ">=", 0.05)]])
    assert (found.left, found.right, found.margins) == ((0.25, 0.0), (0.05, 0.05), (0.2, -0.05))
    assert (found.text, found.sign) == ("some check", ">=")
    assert verdict == "inconclusive"  # mean .075, standard error .125


def test_margins_have_an_interval_and_power():
    _, (found,) = judge([[check(left, ">", 1.0)] for left in (2.0, 3.0, 4.0)])
    # mean 2, standard error .577; t(2) at 97.5 % is 4.303, at 80 % 1.061
    assert found.interval == pytest.approx((2 - 4.303 * 0.57735, 2 + 4.303 * 0.57735), abs=1e-3)
    assert found.detectable == pytest.approx(5.653 * 0.57735, abs=1e-3)
    _, (alone,) = judge([[check(2.0, ">", 1.0)]])
    assert (alone.interval, alone.detectable) == (None, None)


def test_arithmetic_decides_nothing_unless_it_is_alone():
    identity, wrong = replace(YES, arithmetic=True), replace(NO, arithmetic=True)
    assert judge([[YES, wrong]])[0] == "holds"
    assert judge([[DOUBT, identity]])[0] == "inconclusive"
    assert judge([[identity, identity]])[0] == "holds"
    assert judge([[identity, wrong]])[0] == "does not hold"
    assert [found.arithmetic for found in judge([[YES, wrong]])[1]] == [False, True]


YES, NO, DOUBT = check(0.5, ">", 0.25), check(0.5, "<", 0.25), check(missing("lost"), ">", 0)


def test_a_claim_holds_if_all_checks_do():
    assert judge([[YES, YES]])[0] == "holds"
    assert judge([[YES, NO]])[0] == "does not hold"


def test_a_check_that_fails_outweighs_one_in_doubt():
    assert judge([[YES, DOUBT]])[0] == "inconclusive"
    assert judge([[NO, DOUBT]])[0] == "does not hold"


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (any_of(NO, YES), "holds"),
        (any_of(NO, DOUBT), "inconclusive"),
        (any_of(YES, DOUBT), "holds"),
        (negated(NO), "holds"),
        (negated(YES), "does not hold"),
        (negated(DOUBT), "inconclusive"),
        (all_of(YES, YES), "holds"),
        (all_of(YES, NO), "does not hold"),
    ],
)
def test_combinations(condition, expected):
    assert verdict(condition) == expected


def test_all_checks_of_a_combination_are_listed():
    found = judge([[any_of(all_of(YES, NO), negated(DOUBT))]])[1]
    assert [each.verdict for each in found] == ["holds", "does not hold", "inconclusive"]


def test_what_diverged_or_is_missing_is_said():
    diverged = Measured("a", {}, problem="diverged with seed 2").accuracy
    _, (found,) = judge([[check(0.5, ">", 0)], [check(diverged, ">", 0)]])
    assert (found.verdict, found.reason, found.margins) == ("inconclusive", "a: diverged with seed 2", ())


def test_the_first_seed_with_a_missing_number_gives_the_reason():
    seeds = [[check(1, ">", missing("right of seed 1"))], [check(missing("left of seed 2"), ">", 1)]]
    assert judge(seeds)[1][0].reason == "right of seed 1"


SLOW, FAST = Measured("slow", {}, curve(0.1, 0.1, 0.2, 0.6), rounds=4), Measured("fast", {}, curve(0.6), rounds=4)
NEVER = Measured("never", {}, curve(0.1, 0.1, 0.1, 0.1), rounds=4)
SLOW_ROUNDS, FAST_ROUNDS, NEVER_ROUNDS = (rounds_to(each, 0.5) for each in (SLOW, FAST, NEVER))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (check(SLOW_ROUNDS, ">", FAST_ROUNDS), "holds"),
        (check(speed_up(SLOW, FAST, 0.5), ">=", 4), "holds"),
        (check(speed_up(SLOW, FAST, 0.5), ">=", 4.1), "does not hold"),
        (check(NEVER_ROUNDS, ">", SLOW_ROUNDS), "holds"),  # 5 rounds at least
        (check(SLOW_ROUNDS, ">", NEVER_ROUNDS), "does not hold"),
        (check(speed_up(NEVER, FAST, 0.5), ">=", 5), "holds"),
        (check(speed_up(NEVER, FAST, 0.5), ">=", 6), "inconclusive"),  # it might be
        (check(NEVER_ROUNDS, "<=", rounds_to(NEVER, 0.7)), "inconclusive"),
        (check(FAST_ROUNDS, "<=", least(SLOW_ROUNDS, NEVER_ROUNDS)), "holds"),
        (check(NEVER_ROUNDS, "<=", least(SLOW_ROUNDS, FAST_ROUNDS)), "does not hold"),
        # five rounds at the least, so it might be more than five
        (check(NEVER_ROUNDS, ">", 5), "inconclusive"),
        (check(NEVER_ROUNDS, ">=", 5), "holds"),
        (check(NEVER_ROUNDS, "<=", 5), "inconclusive"),
        (check(NEVER_ROUNDS, "<", 5), "does not hold"),
    ],
)
def test_targets_that_were_never_reached(condition, expected):
    assert verdict(condition) == expected


def test_a_run_that_diverged_never_gets_there_where_the_claim_says_so():
    lost = Measured("lost", {}, curve(0.3, 0.4), rounds=4, problem="diverged with seed 1")
    assert verdict(check(rounds_to(lost, 0.5), ">", SLOW_ROUNDS)) == "holds"
    assert verdict(check(rounds_to(lost, 0.4), "<", SLOW_ROUNDS)) == "holds"


def test_a_bound_may_decide_for_every_seed_and_not_for_their_mean():
    late = rounds_to(Measured("late", {}, curve(0.1, 0.1, 0.1, 0.6), rounds=4), 0.5)
    seeds = [check(NEVER_ROUNDS, ">", late), check(FAST_ROUNDS, ">", SLOW_ROUNDS)]
    found, (result,) = judge([[each] for each in seeds])
    assert (found, result.reason) == ("inconclusive", "the target was not reached in the rounds there were")
    assert [verdict(each) for each in seeds] == ["holds", "does not hold"]
    both = [check(NEVER_ROUNDS, ">", SLOW_ROUNDS), check(SLOW_ROUNDS, ">", NEVER_ROUNDS)]  # infinite in both directions
    assert verdict(*both) == "inconclusive"


SIGNS = st.sampled_from([">", ">=", "<", "<=", "=="])
MARGINS = st.lists(st.floats(-10, 10, allow_nan=False).map(lambda value: round(value, 3)), min_size=1, max_size=5)


@given(SIGNS, MARGINS)
def test_the_rules_as_they_are_written(sign, margins):
    verdict, reason = decide(sign, margins)
    mean = fmean(margins)
    if sign == "==":
        assert verdict == ("holds" if set(margins) == {0} else "does not hold")
    elif len(margins) > 1 and abs(mean) < 2 * stdev(margins) / math.sqrt(len(margins)):
        assert verdict == "inconclusive"
    else:
        assert verdict == ("holds" if mean > 0 or (mean == 0 and sign in (">=", "<=")) else "does not hold")
    assert (reason is None) == (verdict != "inconclusive")


@given(SIGNS, MARGINS, st.floats(0.5, 2))
def test_a_larger_margin_never_does_harm_and_the_unit_does_not_matter(sign, margins, factor):
    worth = {"does not hold": 0, "inconclusive": 1, "holds": 2}
    alike = [fmean(margins)] * len(margins)
    if sign != "==":
        assert worth[decide(sign, [margin + 30 for margin in alike])[0]] >= worth[decide(sign, alike)[0]]
        assert decide(sign, [4 * margin for margin in margins])[0] == decide(sign, margins)[0]
    assert met(sign, 1.0)
    assert not met(sign, -1.0)


VERDICTS = st.sampled_from(["holds", "does not hold", "inconclusive"])


@given(VERDICTS, VERDICTS)
def test_combinations_follow_a_logic_of_three_values(one, other):
    parts = {"holds": YES, "does not hold": NO, "inconclusive": DOUBT}
    a, b = parts[one], parts[other]
    both = verdict(all_of(a, b))
    assert both == judge([[a, b]])[0]
    assert both == next(each for each in ("does not hold", "inconclusive", "holds") if each in (one, other))
    assert verdict(any_of(a, b)) == verdict(negated(all_of(negated(a), negated(b))))
