"""Visits are counted whatever the order in which rounds are planned."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.privacy.visit_budget import VisitBudget
from fedrelay.routes.plan import RoundPlan, Route


def planned(round):
    rng = np.random.default_rng(round)
    return RoundPlan(round, tuple(Route(tuple(rng.integers(0, 6, 4).tolist()), slot=slot) for slot in range(2)))


@given(st.integers(0, 9), st.lists(st.integers(1, 12), max_size=6))
def test_nobody_is_visited_too_often_and_the_order_of_asking_does_not_matter(most, asked):
    fresh, used = VisitBudget(most, planned), VisitBudget(most, planned)
    for round in asked:
        used.kept(planned(round))
    kept = [fresh.kept(planned(round)) for round in range(1, 13)]
    assert [used.kept(planned(round)) for round in range(1, 13)] == kept
    visits = Counter(client for plan in kept for route in plan.routes for client in route.clients)
    wanted = Counter(client for round in range(1, 13) for route in planned(round).routes for client in route.clients)
    assert visits == Counter({client: min(most, count) for client, count in wanted.items() if most})


def test_routes_keep_their_slots_and_empty_ones_go():
    plan = RoundPlan(1, (Route((0, 0), slot=0), Route((1, 0), slot=1), Route((0,), slot=2)))
    assert VisitBudget(2, planned).kept(plan).routes == (Route((0, 0), slot=0), Route((1,), slot=1))
    assert VisitBudget(9, planned).kept(plan) is plan


def test_visits_that_never_happened_leave_room_and_who_has_none_left_is_told_once():
    def ring(round):
        return RoundPlan(round, (Route((0, 1, 2)),))

    def without_one_at_first(plan):
        return RoundPlan(plan.round, (Route((0, 2)),)) if plan.round < 3 else plan

    allowance = VisitBudget(2, ring, without_one_at_first)
    assert [allowance.kept(ring(round)).routes for round in (1, 2, 3, 4, 5)] == [
        (Route((0, 1, 2)),),
        (Route((0, 1, 2)),),
        (Route((1,)),),
        (Route((1,)),),
        (),
    ]
    assert [allowance.spent(round) for round in range(1, 7)] == [(), (), (0, 2), (), (1,), ()]
