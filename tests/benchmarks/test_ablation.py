"""The ablation: costs to a target, and two ingredients at once."""

import pytest


@pytest.fixture(scope="module")
def ablation(load_benchmark):
    return load_benchmark("ablation")


def test_costs_are_those_of_the_first_evaluation_at_the_target(ablation):
    one = [[1, 10, 100, 0.5], [2, 20, 200, 0.8], [3, 30, 300, 0.7]]
    two = [[1, 10, 100, 0.5], [2, 20, 200, 0.6], [4, 40, 400, 0.9]]
    assert ablation.costs_to(80.0, [one, two]) == [3, 30, 300]
    assert ablation.costs_to(85.0, [one, two]) is None


def test_two_ingredients_are_left_out_at_once(ablation):
    first, second = ablation.ABLATED[:2]
    both = first.without(second)
    assert both.name == "no look-ahead, random groups"
    assert both.settings == {"server.lookahead": 0.0, "server.ramp": False, "grouping.assign": "random"}


def test_runs_with_other_settings_have_other_keys(ablation):
    cell = ablation.CELLS[0]
    keys = {ablation.Run(cell, variant, 0.1, 1).key for variant in (ablation.RELAY, *ablation.ABLATED)}
    assert len(keys) == 1 + len(ablation.ABLATED)
