"""Hops are counted whatever the order in which rounds are planned."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.privacy.hop_limit import HopLimit
from fedrelay.routes.plan import RoundPlan, Route


def planned(round):
    rng = np.random.default_rng(round)
    return RoundPlan(round, tuple(Route(tuple(rng.integers(0, 6, 4).tolist()), slot=slot) for slot in range(2)))


@given(st.integers(0, 9), st.lists(st.integers(1, 12), max_size=6))
def test_no_client_has_too_many_hops_and_the_order_of_asking_does_not_matter(most, asked):
    fresh, used = HopLimit(most, planned), HopLimit(most, planned)
    for round in asked:
        used.limit(planned(round))
    limited = [fresh.limit(planned(round)) for round in range(1, 13)]
    assert [used.limit(planned(round)) for round in range(1, 13)] == limited
    hops = Counter(client for plan in limited for route in plan.routes for client in route.clients)
    wanted = Counter(client for round in range(1, 13) for route in planned(round).routes for client in route.clients)
    assert hops == Counter({client: min(most, count) for client, count in wanted.items() if most})


def test_routes_keep_their_slots_and_empty_ones_go():
    plan = RoundPlan(1, (Route((0, 0), slot=0), Route((1, 0), slot=1), Route((0,), slot=2)))
    assert HopLimit(2, planned).limit(plan).routes == (Route((0, 0), slot=0), Route((1,), slot=1))
    assert HopLimit(9, planned).limit(plan) is plan


def test_hops_that_never_happened_leave_room_and_clients_with_none_left_are_named_once():
    def ring(round):
        return RoundPlan(round, (Route((0, 1, 2)),))

    def without_one_at_first(plan):
        return RoundPlan(plan.round, (Route((0, 2)),)) if plan.round < 3 else plan

    budget = HopLimit(2, ring, without_one_at_first)
    assert [budget.limit(ring(round)).routes for round in (1, 2, 3, 4, 5)] == [
        (Route((0, 1, 2)),),
        (Route((0, 1, 2)),),
        (Route((1,)),),
        (Route((1,)),),
        (),
    ]
    assert [budget.exhausted(round) for round in range(1, 7)] == [(), (), (0, 2), (), (1,), ()]
