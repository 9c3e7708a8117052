"""The rules of verdicts, with exact numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.claims.criteria import Dotted, kept, parse
from fedrelay.claims.subjects import Subject
from fedrelay.claims.verdicts import Judgement, decide, judge


def curve(*accuracies: float) -> list[dict[str, float]]:
    return [{"round": t, "accuracy": accuracy} for t, accuracy in enumerate(accuracies, start=1)]


def judged(text: str | Sequence[str], *seeds: dict[str, Subject | float]) -> Judgement:
    """The verdict on `a.accuracy …` for seeds with these subjects, or accuracies."""

    def resolve(known: dict[str, Subject | float]):
        def found(name: Dotted) -> Subject:
            each = known[name[0]]
            return each if isinstance(each, Subject) else Subject(name[0], {"accuracy": each})

        return found

    texts = [text] if isinstance(text, str) else text
    return judge([parse(each) for each in texts], [resolve(known) for known in seeds])


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
        # mean 1, deviation √2, standard error 1: not smaller, so it is decided
        (">", [2.0, 0.0], "holds"),
        (">=", [0.0, 0.0, 0.0], "holds"),
        (">", [0.0, 0.0, 0.0], "does not hold"),
    ],
)
def test_one_comparison(sign, margins, verdict):
    assert decide(sign, margins)[0] == verdict


def test_the_reason_of_doubt_is_given():
    assert decide(">", [2.0, -1.0])[1] == "the margin 0.5 is smaller than its standard error 1.5"


def test_margins_are_taken_seed_by_seed():
    found = judged("a.accuracy - b.accuracy >= 0.05", {"a": 0.75, "b": 0.5}, {"a": 0.5, "b": 0.5})
    (finding,) = found.findings
    assert (finding.left, finding.right, finding.margins) == ((0.25, 0.0), (0.05, 0.05), (0.2, -0.05))
    assert found.verdict == "inconclusive"  # mean .075, standard error .125


def test_a_claim_holds_if_all_parts_do():
    seed = {"a": 0.5, "b": 0.25}
    assert judged(["a.accuracy > b.accuracy", "a.accuracy <= 0.5"], seed).verdict == "holds"
    assert judged(["a.accuracy > b.accuracy", "a.accuracy < 0.5"], seed).verdict == "does not hold"


def test_a_part_that_fails_outweighs_one_in_doubt():
    lost = Subject("b", {}, problem="seed 1 was not run")
    assert judged("a.accuracy > 0 and b.accuracy > 0", {"a": 0.5, "b": lost}).verdict == "inconclusive"
    assert judged("a.accuracy > 1 and b.accuracy > 0", {"a": 0.5, "b": lost}).verdict == "does not hold"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("a.accuracy > 1 or a.accuracy > 0", "holds"),
        ("a.accuracy > 1 or b.accuracy > 0", "inconclusive"),
        ("a.accuracy > 0 or b.accuracy > 0", "holds"),
        ("not a.accuracy > 1", "holds"),
        ("not a.accuracy > 0", "does not hold"),
        ("not b.accuracy > 0", "inconclusive"),
        ("0 < a.accuracy < 1", "holds"),
        ("0 < a.accuracy < 0.5", "does not hold"),
    ],
)
def test_words(text, verdict):
    assert judged(text, {"a": 0.5, "b": Subject("b", {}, problem="lost")}).verdict == verdict


def test_what_diverged_or_is_missing_is_said():
    diverged = Subject("a", {}, problem="diverged with seed 2")
    (finding,) = judged("a.accuracy > 0", {"a": 0.5}, {"a": diverged}).findings
    assert (finding.verdict, finding.reason, finding.margins) == ("inconclusive", "a: diverged with seed 2", ())


SLOW, FAST = Subject("slow", {}, curve(0.1, 0.1, 0.2, 0.6), rounds=4), Subject("fast", {}, curve(0.6), rounds=4)
NEVER = Subject("never", {}, curve(0.1, 0.1, 0.1, 0.1), rounds=4)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("rounds_to(slow, 0.5) > rounds_to(fast, 0.5)", "holds"),
        ("speed_up(slow, fast, 0.5) >= 4", "holds"),
        ("speed_up(slow, fast, 0.5) >= 4.1", "does not hold"),
        ("rounds_to(never, 0.5) > rounds_to(slow, 0.5)", "holds"),  # 5 rounds at least
        ("rounds_to(slow, 0.5) > rounds_to(never, 0.5)", "does not hold"),
        ("speed_up(never, fast, 0.5) >= 5", "holds"),
        ("speed_up(never, fast, 0.5) >= 6", "inconclusive"),  # it might be
        ("rounds_to(never, 0.5) <= rounds_to(never, 0.7)", "inconclusive"),
        ("rounds_to(fast, 0.5) <= min(rounds_to(slow, 0.5), rounds_to(never, 0.5))", "holds"),
        ("rounds_to(never, 0.5) <= min(rounds_to(slow, 0.5), rounds_to(fast, 0.5))", "does not hold"),
    ],
)
def test_targets_that_were_never_reached(text, verdict):
    assert judged(text, {"slow": SLOW, "fast": FAST, "never": NEVER}).verdict == verdict


def test_a_run_that_diverged_never_gets_there_where_the_claim_says_so():
    lost = Subject("lost", {}, curve(0.3, 0.4), rounds=4, problem="diverged with seed 1")
    assert judged("rounds_to(lost, 0.5) > rounds_to(slow, 0.5)", {"lost": lost, "slow": SLOW}).verdict == "holds"
    assert judged("rounds_to(lost, 0.4) < rounds_to(slow, 0.5)", {"lost": lost, "slow": SLOW}).verdict == "holds"


def test_a_bound_that_is_no_margin_decides_nothing():
    # five rounds at the least, so it might be more than five
    assert judged("rounds_to(never, 0.5) > 5", {"never": NEVER}).verdict == "inconclusive"
    assert judged("rounds_to(never, 0.5) >= 5", {"never": NEVER}).verdict == "holds"
    assert judged("rounds_to(never, 0.5) <= 5", {"never": NEVER}).verdict == "inconclusive"
    assert judged("rounds_to(never, 0.5) < 5", {"never": NEVER}).verdict == "does not hold"


def test_a_bound_may_decide_for_every_seed_and_not_for_their_mean():
    seeds = [
        {"slow": NEVER, "fast": Subject("fast", {}, curve(0.1, 0.1, 0.1, 0.6), rounds=4)},
        {"slow": FAST, "fast": SLOW},
    ]
    found = judged("rounds_to(slow, 0.5) > rounds_to(fast, 0.5)", *seeds)
    assert (found.verdict, found.findings[0].reason) == (
        "inconclusive", "the target was not reached in the rounds there were",
    )  # fmt: skip
    assert judged("rounds_to(slow, 0.5) > rounds_to(fast, 0.5)", seeds[0]).verdict == "holds"
    assert judged("rounds_to(slow, 0.5) > rounds_to(fast, 0.5)", seeds[1]).verdict == "does not hold"
    both = [{"slow": NEVER, "fast": SLOW}, {"slow": SLOW, "fast": NEVER}]  # endless this way and that way
    assert judged("rounds_to(slow, 0.5) > rounds_to(fast, 0.5)", *both).verdict == "inconclusive"


SIGNS = st.sampled_from([">", ">=", "<", "<=", "=="])
MARGINS = st.lists(st.floats(-10, 10, allow_nan=False).map(lambda value: round(value, 3)), min_size=1, max_size=5)


@given(SIGNS, MARGINS)
def test_the_rules_as_they_are_written(sign, margins):
    verdict, reason = decide(sign, margins)
    mean = fmean(margins)
    if sign == "==":
        assert verdict == ("holds" if set(margins) == {0} else "does not hold")
    elif len(margins) > 1 and abs(mean) < stdev(margins) / math.sqrt(len(margins)):
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
    assert kept(sign, 1.0)
    assert not kept(sign, -1.0)


VERDICTS = st.sampled_from(["holds", "does not hold", "inconclusive"])


@given(VERDICTS, VERDICTS)
def test_all_any_and_not_are_those_of_three_values(one, other):
    parts = {"holds": "a.accuracy > 0", "does not hold": "a.accuracy > 1", "inconclusive": "b.accuracy > 0"}
    seed = {"a": 0.5, "b": Subject("b", {}, problem="lost")}

    def verdict(text: str) -> str:
        return judged(text, seed).verdict

    both = verdict(f"{parts[one]} and {parts[other]}")
    assert both == judged([parts[one], parts[other]], seed).verdict
    assert both == (
        "does not hold"
        if "does not hold" in (one, other)
        else "inconclusive"
        if "inconclusive" in (one, other)
        else "holds"
    )
    either = verdict(f"{parts[one]} or {parts[other]}")
    assert either == verdict(f"not (not {parts[one]} and not {parts[other]})")
