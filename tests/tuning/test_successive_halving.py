"""Exact decisions on made-up scores."""

from __future__ import annotations

import math

import pytest

from fedrelay.experiment.method_hyperparameters import Hyperparameter
from fedrelay.tuning.score import TrialScore
from fedrelay.tuning.search_space import Point, SearchSpace
from fedrelay.tuning.successive_halving import search


def decide(space, objective, rungs=3, extensions=3, higher_is_better=True):
    """The choice, and the trials that ran to each rung, wave by wave."""
    going = search(space, rungs, extensions, higher_is_better=higher_is_better)
    waves, wanted = [], next(going)
    while True:
        waves.append([(each.trial.number, each.rung) for each in wanted])
        try:
            wanted = going.send([objective(each.trial.point, each.rung) for each in wanted])
        except StopIteration as end:
            return end.value, waves


def peak_at(best):
    """Scores that fall with the distance from a learning rate."""
    return lambda point, rung: TrialScore(1 - abs(math.log2(point.lr / best)) / 100)


SPACE = SearchSpace.around(1, 8, 7)  # 1/8, 1/4, 1/2, 1, 2, 4, 8


def test_the_better_half_goes_on_at_every_rung_but_the_last():
    choice, waves = decide(SPACE, peak_at(1.9))
    assert waves == [
        [(number, 0) for number in range(1, 8)],
        [(5, 1), (4, 1), (6, 1), (3, 1)],
        [(5, 2), (4, 2)],
    ]
    assert choice.best.point == Point(2.0)
    assert [len(trial.scores) for trial in choice.trials] == [1, 1, 2, 3, 3, 2, 1]
    assert not choice.at_edge


def test_a_later_rung_may_overturn_an_earlier_one():
    def objective(point, rung):
        return peak_at(2.0 if rung < 2 else 1.0)(point, rung)

    assert decide(SPACE, objective)[0].best.point == Point(1.0)


def test_lower_may_be_better():
    def objective(point, rung):
        return TrialScore(abs(point.lr - 0.5))

    assert decide(SPACE, objective, higher_is_better=False)[0].best.point == Point(0.5)


@pytest.mark.parametrize(("best", "tried"), [(20.0, [16.0, 32.0]), (0.06, [0.0625, 0.0312])])
def test_a_best_learning_rate_at_the_edge_extends_the_grid(best, tried):
    choice, waves = decide(SPACE, peak_at(best))
    assert [trial.point.lr for trial in choice.trials if trial.extension] == tried
    assert choice.best.point.lr == tried[0]
    assert not choice.at_edge
    assert waves[3:] == [[(8, 2)], [(9, 2)]]  # extensions go to the last rung at once


def test_extensions_are_bounded():
    choice, _ = decide(SPACE, peak_at(1e6), extensions=2)
    assert [trial.point.lr for trial in choice.trials if trial.extension] == [16.0, 32.0]
    assert choice.at_edge
    choice, waves = decide(SPACE, peak_at(1e6), extensions=0)
    assert (len(choice.trials), len(waves)) == (7, 3)
    assert choice.at_edge


def test_an_extension_keeps_the_value_of_the_own_setting():
    space = SearchSpace.around(1, 8, 7, Hyperparameter("terms.prox.mu", (0.1, 1.0)))
    choice, _ = decide(space, peak_at(16.0))
    assert choice.best.point == Point(16.0, 0.1)


def test_a_failed_trial_goes_no_further_and_is_never_best():
    def objective(point, rung):
        return TrialScore(None, problem="diverged") if point.lr > 1 else peak_at(1e6)(point, rung)

    choice, waves = decide(SPACE, objective)
    assert choice.best.point == Point(1.0)
    assert {number for number, _ in waves[1]} == {1, 2, 3, 4}
    failed, _ = decide(SPACE, lambda point, rung: TrialScore(None, problem="diverged"))
    assert failed.best.score.problem == "diverged"
    assert len(failed.trials) == 7


def test_every_method_has_the_same_budget():
    own = Hyperparameter("terms.prox.mu", (0.01, 0.1, 1.0))
    counts = [
        [len(wave) for wave in decide(SearchSpace.around(1, 8, 12, each), peak_at(1.1))[1]] for each in (None, own)
    ]
    assert counts == [[12, 6, 3], [12, 6, 3]]
