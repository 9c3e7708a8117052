"""The ablation: costs to a target, and two ingredients at once."""

import pytest


@pytest.fixture(scope="module")
def ablation(load_benchmark):
    return load_benchmark("ablation")


def test_costs_are_those_of_the_first_evaluation_at_the_target(ablation):
    one = {"curve": [[1, 10, 100, 0.5], [2, 20, 200, 0.8], [3, 30, 300, 0.7]]}
    two = {"curve": [[1, 10, 100, 0.5], [2, 20, 200, 0.6], [4, 40, 400, 0.9]]}
    assert ablation.costs_to(0.8, [one, two]) == [3, 30, 300]
    assert ablation.costs_to(0.85, [one, two]) is None
    assert ablation.costs_to(0.8, [one, {"score": None}]) is None  # diverged


def test_the_two_ingredients_that_are_missed_most_are_left_out_at_once(ablation):
    names = [each.name for each in ablation.INGREDIENTS]
    scores = [0.5 if name in ("random groups", "constant learning rate") else 0.9 for name in names]
    both = ablation.two_at_once(ablation.INGREDIENTS, scores)
    assert both.name == "random groups, constant learning rate"
    assert both.settings == {"grouping.assign": "random", "schedule": "constant"}


def test_scores_say_how_many_runs_diverged(ablation):
    assert ablation.Scored(0.1, [{"score": 0.5}, {"score": 0.7}]).words == "60.0 ± 14.1"
    assert ablation.Scored(0.1, [{"score": 0.5}, {"score": None}]).words == "25.0 ± 35.4 (1 of 2 diverged)"
