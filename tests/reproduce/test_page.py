from __future__ import annotations

import pytest

import fedrelay as fr
from fedrelay_reproduce import Claim, ClaimExperiment
from fedrelay_reproduce.catalogue import load_claims
from fedrelay_reproduce.first_edition import first_edition
from fedrelay_reproduce.page import (
    BEGIN,
    END,
    headline_table,
    margin_words,
    our_numbers,
    reproduction_page,
    spread,
    verdict_words,
    with_headlines,
)


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
    kept = {"text": "a is greater", "sign": ">=", "left": [1.0], "right": [0.5], "margins": [0.5], "verdict": "holds"}
    missed = {**kept, "left": [0.0], "margins": [-0.5], "verdict": "does not hold"}
    doubtful = {**kept, "verdict": "inconclusive"}
    lost = {"text": "a is greater", "sign": ">", "left": [], "right": [], "margins": [], "reason": "seed 1 was not run"}
    entry = {"verdict": "does not hold", "scale": "small", "checks": [kept, missed, doubtful, lost]}
    assert list(our_numbers(entry)) == ["1 ≥ 0.5", "0 ≥ 0.5 ✗", "1 ≥ 0.5 ?", "seed 1 was not run"]
    assert list(our_numbers({"verdict": "not run", "reason": None})) == ["–"]


@pytest.mark.parametrize(
    ("scale", "seeds", "words"),
    [
        ("smoke", 1, "holds (smoke, one seed)"),
        ("smoke", 3, "holds (smoke)"),
        ("small", 3, "holds"),
        ("small", 1, "holds (one seed)"),
    ],
)
def test_a_verdict_that_rests_on_little_is_marked(scale, seeds, words):
    assert verdict_words({"scale": scale, "verdict": "holds", "seeds": list(range(seeds))}) == words
    assert verdict_words({"scale": scale, "verdict": "not run"}) == "not run"


def test_the_rules_stand_on_the_page_and_so_do_all_words():
    page = reproduction_page({}, {}, {})
    assert "These were relaxed: 3 (one comparison fewer)" in page
    assert "| `speed_up` | How many times fewer rounds a run needs than the baseline to reach an accuracy |" in page
    assert "| `balance_ratio` | rarest over most frequent class in a group, mean over groups |" in page


TEXT = """Title {}.

Source: paper

In short: 2 | 1

Published: 2 and 1

Holds if: more
"""


def claim(number: int, more: str = "") -> Claim:
    return Claim(number, TEXT.format(number) + more, lambda: [], {"one": ClaimExperiment("1/one", {})})


ENTRY = {
    "claim": 1, "verdict": "holds", "scale": "small", "seeds": [1, 2], "seconds": 200.0, "measured": {}, "versions": {},
    "failed_runs": ["fedseq, seed 2: diverged"],
    "checks": [
        {"text": "a | b", "sign": ">", "verdict": "holds", "left": [2.0], "right": [1.0], "margins": [1.0],
         "reason": None}
    ],
}  # fmt: skip


def test_a_verdict_shows_its_interval_and_whether_it_is_weak():
    check = {**ENTRY["checks"][0], "left": [2.0, 3.0, 4.0], "right": [1.0] * 3, "margins": [1.0, 2.0, 3.0]}
    weak = {**check, "interval": (-0.484, 4.484), "detectable": 3.1}
    page = reproduction_page({1: claim(1)}, {1: {**ENTRY, "checks": [weak]}}, {})
    assert "| a \\| b | 3.0 ± 1.0 | > | 1 | 2.0 [-0.5, 4.5] | 3.1 | holds (its interval contains 0) |" in page
    assert "| 3.0 ± 1.0 > 1, margin 2.0 [-0.5, 4.5] | small | 3:20 | holds (weakly) |" in page
    strong = {**check, "interval": (1.0, 3.0)}
    assert verdict_words({**ENTRY, "checks": [strong]}) == "holds"
    assert verdict_words({**ENTRY, "checks": [strong, weak]}) == "holds (weakly)"
    failed = {**strong, "verdict": "does not hold", "interval": (-3.0, -1.0)}
    assert verdict_words({**ENTRY, "verdict": "does not hold", "checks": [failed, weak]}) == "does not hold"
    weakly_failed = {**failed, "interval": (-3.0, 1.0)}
    assert verdict_words({**ENTRY, "verdict": "does not hold", "checks": [weakly_failed]}) == "does not hold (weakly)"


def test_accuracies_are_shown_in_percent_and_their_margins_in_points():
    check = {
        **ENTRY["checks"][0], "unit": "%", "left": [0.18, 0.2], "right": [0.05, 0.05], "margins": [0.13, 0.15],
        "interval": (0.0129, 0.2671), "detectable": 0.1,
    }  # fmt: skip
    page = reproduction_page({1: claim(1)}, {1: {**ENTRY, "checks": [check]}}, {})
    assert "| a \\| b | 19.0 ± 1.4 % | > | 5 % | 14 [1, 27] points | 10 | holds |" in page
    gain = reproduction_page({1: claim(1)}, {1: {**ENTRY, "checks": [{**check, "unit": "points"}]}}, {})
    assert "| a \\| b | 19.0 ± 1.4 points | > | 5 points | 14 [1, 27] points | 10 | holds |" in gain


def test_a_claim_of_arithmetic_alone_says_so():
    identity = {**ENTRY["checks"][0], "arithmetic": True}
    assert verdict_words({**ENTRY, "checks": [identity]}) == "holds (arithmetic alone)"
    assert verdict_words({**ENTRY, "checks": [identity, ENTRY["checks"][0]]}) == "holds"


def test_the_first_edition_stays_on_the_page():
    edition = first_edition()
    assert list(edition.claims) == list(load_claims())
    assert edition.tally.endswith("15 held, 11 did not, 3 were inconclusive.")
    page = reproduction_page(load_claims(), {}, {})
    assert "| 15 | [FedGSP is better and several times faster than parallel methods](#claim-15) |" in page
    assert "| – | – | – | not run | does not hold |" in page
    assert "<summary>First edition, 2026-11-16, scale small: does not hold</summary>" in page
    assert edition.tally in page
    assert all(before.holds_if in page for before in edition.claims.values())


def test_the_short_table_has_the_claims_that_say_most():
    claims = {number: claim(number) for number in (1, 2, 3, 25)}
    assert headline_table(claims, {1: ENTRY, 3: ENTRY}, "docs/page.md").splitlines() == [
        "| # | claim | paper | verdict |",
        "|---|---|---|---|",
        "| 1 | [Title 1](docs/page.md#claim-1) | 2 \\| 1 | holds |",
        "| 2 | [Title 2](docs/page.md#claim-2) | 2 \\| 1 | not run |",
        "| 25 | [Title 25](docs/page.md#claim-25) | 2 \\| 1 | not run |",
        "",
        "Of 4 claims 2 hold, 0 do not, 0 are inconclusive, 2 were not run. [All of them](docs/page.md).",
    ]


def test_the_table_says_how_many_numbers_it_leaves_out():
    entry = {**ENTRY, "checks": ENTRY["checks"] * 6}
    page = reproduction_page({1: claim(1)}, {1: entry}, {})
    assert "| 2 > 1<br>2 > 1<br>2 > 1<br>2 > 1<br>… and 2 more | small |" in page


def test_runs_that_failed_are_named_and_readings_belong_to_a_verdict():
    read = claim(1, "\nReading (small, holds): As hoped.\n\nReading (small, does not hold): A pity.\n")
    page = reproduction_page({1: read}, {1: ENTRY}, {})
    assert "- fedseq, seed 2: diverged\n" in page
    assert "As hoped." in page
    assert "A pity." not in page


def test_a_remark_follows_its_verdict_wherever_it_is_shown():
    entry = {**ENTRY, "remark": "stand-in data"}
    page = reproduction_page({1: claim(1)}, {1: entry}, {})
    assert "| small | 3:20 | holds (stand-in data) |" in page
    assert "**Holds (stand-in data)**" in page
    assert "Of 1 claims 1 holds (claim 1: stand-in data), 0 do not" in page


def test_margins_have_no_negative_zero():
    check = {**ENTRY["checks"][0], "margins": [0.0, 8.1], "interval": (-0.04, 8.1)}
    assert margin_words(check) == "4.0 [0.0, 8.1]"


def test_every_claim_has_its_command_and_time():
    page = reproduction_page({1: claim(1)}, {1: ENTRY}, {})
    assert "| 1 | [Title 1](#claim-1) | 2 \\| 1 | 2 > 1 | small | 3:20 | holds |" in page
    assert "| a \\| b | 2 | > | 1 | 1 | – | holds |" in page
    assert "<sub>`fedrelay reproduce 1 --seeds 2` · its runs took 3:20 · </sub>" in page


def test_a_table_takes_the_place_of_the_one_before_and_of_nothing_else():
    page = f"# Title\n\n{BEGIN}\n{END}\n\nrest {{}}\n"
    once = with_headlines(page, "| a |\n")
    assert once == f"# Title\n\n{BEGIN}\n| a |\n{END}\n\nrest {{}}\n"
    assert with_headlines(once, "| a |\n") == once
    assert with_headlines(once, "") == page


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_marks_that_are_no_pair_are_refused(page):
    with pytest.raises(fr.SpecError, match="needs one <!-- claims"):
        with_headlines(page, "")
