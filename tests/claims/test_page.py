from __future__ import annotations

import pytest

from fedrelay.claims.claim import Claims
from fedrelay.claims.page import ours, reproduction_page, spread, verdict_words


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.5], "0.5"),
        ([20, 20], "20"),
        ([6603710.0], "6,603,710"),
        ([0.1, 0.2, 0.3], "0.20 ± 0.10"),
        ([50, 51, 52], "51.0 ± 1.0"),
        ([100, 200], "150 ± 71"),
        ([0.00012, 0.00014], "0.000130 ± 0.000014"),
        ([12345.678], "12,346"),
        ([-1, 1], "0.0 ± 1.4"),
    ],
)
def test_numbers_have_as_many_digits_as_they_mean(values, text):
    assert spread(values) == text


def test_our_side_of_a_claim():
    kept = {"text": "a.loss - 1 >= b.loss", "left": [1.0], "right": [0.5], "margins": [0.5], "reason": None}
    lost = {"text": "a.loss > 1", "left": [], "right": [], "margins": [], "reason": "seed 1 was not run"}
    entry = {"verdict": "inconclusive", "scale": "small", "findings": [kept, lost]}
    assert list(ours(entry)) == ["1 >= 0.5", "seed 1 was not run"]
    assert list(ours({"verdict": "not run", "reason": None})) == ["–"]


@pytest.mark.parametrize(
    ("scale", "verdict", "words"),
    [("smoke", "holds", "holds (smoke)"), ("small", "holds", "holds"), ("smoke", "not run", "not run")],
)
def test_a_verdict_of_smoke_is_marked(scale, verdict, words):
    assert verdict_words({"scale": scale, "verdict": verdict}) == words


def test_the_rules_stand_on_the_page_and_so_do_all_words():
    page = reproduction_page(Claims({}), {}, {})
    assert "These rules were fixed before anything was run." in page
    assert "| `speed_up` | rounds of the first over rounds of the second to an accuracy |" in page
    assert "| `balance_ratio` | rarest over commonest class in a group, mean |" in page
