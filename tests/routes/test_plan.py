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
