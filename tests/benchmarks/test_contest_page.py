"""The page of the contest: who wins, ties and loses a cell."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def contest_page(load_benchmark):
    return load_benchmark("contest_page")


def cell(ours, *, alpha=None, **rivals):
    scores = {"relay": ours, **rivals}
    screened = [(name, 0.5, {"train.lr": 0.1}, 8) for name in scores]
    return {
        "title": "Toy", "frozen": False, "alpha": alpha, "metric": "accuracy", "ours": ["relay"], "screened": screened,
        "scores": {"updates": scores, "bytes": scores, "time": scores},
    }  # fmt: skip


STEADY = [0.50, 0.51, 0.52, 0.51, 0.50]


def test_the_rival_is_the_best_on_test_samples(contest_page):
    found = cell(STEADY, fedavg=[0.4] * 5, fedseq=[0.45] * 5)
    assert contest_page.best_rival(found, "updates") == "fedseq"
    assert contest_page.lead(found, "updates").mean == pytest.approx(5.8)


@pytest.mark.parametrize(
    ("rival", "outcome"),
    [
        ([0.40, 0.42, 0.41, 0.40, 0.41], "won"),
        ([0.50, 0.53, 0.50, 0.51, 0.51], "tied"),
        ([0.60, 0.62, 0.61, 0.60, 0.61], "lost"),
    ],
)
def test_a_clear_lead_wins_and_a_clear_deficit_loses(contest_page, rival, outcome):
    assert contest_page.outcomes([cell(STEADY, fedseq=rival)], "updates") == [outcome]


def test_a_deficit_that_may_be_one_of_many_chances_is_not_lost(contest_page):
    weak = cell(STEADY, fedseq=[0.52, 0.51, 0.53, 0.53, 0.51])
    assert contest_page.outcomes([weak], "updates") == ["lost"]
    tied = [cell(STEADY, fedseq=[0.51, 0.50, 0.52, 0.50, 0.51])] * 15
    assert contest_page.outcomes([weak, *tied], "updates")[0] == "behind"


def test_a_run_that_diverged_counts_as_nothing(contest_page):
    assert contest_page.mean([0.5, None]) == 25.0
    page = "\n".join(contest_page.page([cell([*STEADY[:4], None], fedseq=STEADY)]))
    assert "| Toy | 40.8 | fedseq | 50.8 | -10.0 (-37.8 … +17.8) | tied |" in page
    assert "Of 1 cells: 0 won, 1 tied, 0 behind, 0 lost." in page


def test_goals(contest_page):
    won = cell(STEADY, alpha=0.1, fedseq=[0.40, 0.42, 0.41, 0.40, 0.41])
    lost = cell(STEADY, alpha=0.5, fedseq=[0.60, 0.62, 0.61, 0.60, 0.61])
    page = list(contest_page.page([won, won, won, won, lost]))
    assert "| no cell lost | 1 lost | **not met** |" in page
    assert "| won or tied in at least 80 % of the cells | 4 of 5 | met |" in page
    [gain] = [line for line in page if "median lead over tuned FedSeq" in line]
    assert gain.endswith("| +10.0 | met |")
    assert not any("median lead" in line for line in contest_page.page([lost]))


def test_shortfalls_are_below_the_best_of_each_cell(contest_page):
    def screened(**scores):
        return {**cell(STEADY), "screened": [(name, score, {}, 8) for name, score in scores.items()]}

    found = contest_page.shortfalls([screened(a=0.9, b=0.8), screened(a=0.5, b=0.7, c=0.6)])
    assert list(found) == ["b", "a", "c"]  # c always diverged in the first cell
    assert found["a"] == pytest.approx([0.0, 20.0])
    assert found["c"] == pytest.approx([90.0, 10.0])
