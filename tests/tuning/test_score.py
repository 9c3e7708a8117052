from __future__ import annotations

import pytest

from fedrelay.experiment.spec import StopSettings
from fedrelay.runtime.best_and_stop import SelectionMetric
from fedrelay.tuning.score import Rung, TrialScore, mean_score, rungs, score_of_run

ACCURACY = SelectionMetric("validation_accuracy", higher_is_better=True)


def row(round, value=0.5, updates=None):
    return {
        "round": round,
        "validation_accuracy": value,
        "client_updates": 2 * round if updates is None else updates,
        "bytes": 100 * round,
        "virtual_seconds": 3600.0 * round,
    }


def test_rungs_are_shares_of_the_budget_each_twice_the_one_below():
    assert [rung.share for rung in rungs(3, 8, StopSettings())] == [0.25, 0.5, 1.0]


def test_a_rung_ends_a_run_at_its_share_of_whatever_comes_first():
    history = [row(round) for round in range(1, 9)]
    half = Rung(0.5, 8, StopSettings())
    assert [each["round"] for each in half.rows(history)] == [1, 2, 3, 4]
    assert half.rows(history[:2]) == history[:2]
    for limit in ({"max_bytes": 400}, {"max_updates": 7}, {"max_hours": 4.0}):
        assert Rung(0.5, 8, StopSettings(**limit)).rows(history)[-1]["round"] == 2, limit


def test_the_best_value_so_far_counts_and_ties_go_to_the_faster():
    slow = score_of_run([row(1, 0.1), row(2, 0.9), row(3, 0.5)], ACCURACY, "score", None)
    fast = score_of_run([row(1, 0.9), row(2, 0.5), row(3, 0.5)], ACCURACY, "score", None)
    assert slow == TrialScore(0.9, 0.5)
    assert fast.rank(True) < slow.rank(True)
    error = SelectionMetric("validation_accuracy", higher_is_better=False)
    assert score_of_run([row(1, 0.3), row(2, 0.1)], error, "score", None).value == 0.1


@pytest.mark.parametrize(("objective", "cost"), [("rounds", 2), ("updates", 4), ("bytes", 200), ("hours", 2.0)])
def test_costs_count_until_the_target_is_first_reached(objective, cost):
    history = [row(1, 0.5), row(2, 0.8), row(3, 0.6)]
    assert score_of_run(history, ACCURACY, objective, 0.8).cost == cost
    assert score_of_run(history, ACCURACY, objective, 0.81).cost is None
    low = SelectionMetric("validation_accuracy", higher_is_better=False)
    assert score_of_run(history, low, "rounds", 0.5).cost == 1


def test_the_order_is_cheap_then_close_to_the_target_then_failed():
    cheap, dear = TrialScore(0.9, cost=2.0), TrialScore(0.95, cost=3.0)
    near, far, failed = TrialScore(0.8), TrialScore(0.2), TrialScore(None, problem="diverged")
    assert sorted([failed, far, dear, near, cheap], key=lambda each: each.rank(True)) == [
        cheap, dear, near, far, failed,
    ]  # fmt: skip
    assert sorted([near, far], key=lambda each: each.rank(False)) == [far, near]


def test_a_mean_over_seeds_needs_all_of_them():
    one, two = TrialScore(0.5, 0.25, 2.0), TrialScore(0.75, 0.5, 4.0)
    assert mean_score([one, two]) == TrialScore(0.625, 0.375, 3.0)
    assert mean_score([one, TrialScore(0.75, 0.5)]).cost is None
    assert mean_score([one, TrialScore(None, problem="diverged")]) == TrialScore(None, problem="diverged")
    assert score_of_run([], ACCURACY, "score", None).problem == "no evaluation on validation samples"
    undefined = SelectionMetric("validation_auroc", higher_is_better=True, loss="validation_loss")
    assert score_of_run([{"validation_auroc": None, "validation_loss": 0.5}], undefined, "score", None) == TrialScore(
        None, problem="validation_auroc is undefined", advice="choose another metric (eval.metric)"
    )
