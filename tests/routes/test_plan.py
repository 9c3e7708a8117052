from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from fedrelay.routes.plan import Hop, RoundPlan, Route


def test_hops_come_in_wavefront_order():
    plan = RoundPlan(4, (Route((5, 6, 7)), Route((1,)), Route((2, 3))))
    assert list(plan.hops()) == [
        Hop(4, 0, 0, 5),
        Hop(4, 1, 0, 1),
        Hop(4, 2, 0, 2),
        Hop(4, 0, 1, 6),
        Hop(4, 2, 1, 3),
        Hop(4, 0, 2, 7),
    ]
    assert plan.longest == 3
    assert plan.client_updates == 6


def test_an_empty_plan_costs_nothing():
    plan = RoundPlan(1, ())
    assert (plan.longest, plan.client_updates, list(plan.hops())) == (0, 0, [])


def test_a_plan_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        RoundPlan(1, ()).round = 2  # type: ignore[misc]
