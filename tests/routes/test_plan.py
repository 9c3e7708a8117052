from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from fedrelay.routes.plan import RoundPlan, Route


def test_a_plan_tells_its_cost_in_time_and_in_work():
    plan = RoundPlan(4, (Route((5, 6, 7)), Route((1,)), Route((2, 3))))
    assert plan.longest == 3
    assert plan.client_updates == 6


def test_an_empty_plan_costs_nothing():
    plan = RoundPlan(1, ())
    assert (plan.longest, plan.client_updates) == (0, 0)


def test_a_plan_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        RoundPlan(1, ()).round = 2  # type: ignore[misc]


def test_hops_of_the_same_index_are_one_step_without_an_order():
    assert RoundPlan(1, (Route((0, 1, 2)), Route((2, 0)))).steps == ((0, 1, 2), (0, 1))
    assert RoundPlan(1, ()).steps == ()


def test_where_the_order_is_known_the_later_hop_at_a_client_waits():
    """The model of route 1 leaves the group 0, 1 before that of route 0 comes there, though by a longer way."""
    plan = RoundPlan(1, (Route((1, 0), order=(2, 2)), Route((5, 6, 7, 0, 1), order=(0, 0, 0, 1, 1))))
    assert plan.steps == ((5, 6), (0, 1, 2, 3, 4))


def test_a_client_that_is_asked_again_at_the_end_comes_after_those_before_it():
    assert RoundPlan(1, (Route((1, 0), order=(4, 2)), Route((0,), order=(3,)))).steps == ((0, 1), (0,))


def test_a_client_that_trains_one_model_after_another_starts_with_the_lowest_route():
    meeting = RoundPlan(1, (Route((0, 1, 2)), Route((0, 3)), Route((0, 1))))
    assert meeting.steps == ((0, 1, 2), (0, 1), (0, 1))
    assert meeting.steps_one_by_one == ((0, 1, 2), (1, 2), (2, 3))
    rotations = RoundPlan(1, tuple(Route(clients) for clients in ((0, 1, 2), (1, 2, 0), (2, 0, 1))))
    assert rotations.steps_one_by_one == rotations.steps


def test_some_hops_of_a_route_keep_their_order():
    assert Route((5, 6, 7), 2, (0, 1, 3)).only([0, 2]) == Route((5, 7), 2, (0, 3))
    assert Route((5, 6, 7), 2).only([1]) == Route((6,), 2)
