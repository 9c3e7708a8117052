from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.chains import Chains

GROUPS = ((0, 1, 2), (3, 4), (5, 6, 7, 8))


@given(st.integers(1, 4), st.integers(0, 2**40), st.integers(1, 100))
def test_chains_walk_through_whole_groups(loops, seed, round):
    plan = Chains(loops=loops).plan(PlanningContext(9, 0.7, seed, GROUPS), round)
    assert len(plan.routes) == 2
    for route in plan.routes:
        group = next(group for group in GROUPS if route.clients[0] in group)
        for loop in range(loops):
            assert sorted(route.clients[loop * len(group) : (loop + 1) * len(group)]) == list(group)
    found = transfer_totals(plan, {"model": 1})
    visits = sum(len(route.clients) for route in plan.routes)
    assert (found.s2c, found.c2s, found.c2c) == (2, 2, visits - 2)


def test_chains_are_reshuffled_every_round_and_loop():
    group = (tuple(range(12)),)
    orders = {Chains().plan(PlanningContext(12, 1.0, 1, group), round).routes[0].clients for round in range(1, 6)}
    assert len(orders) == 5
    (route,) = Chains(loops=2).plan(PlanningContext(12, 1.0, 1, group), 1).routes
    assert route.clients[:12] != route.clients[12:]
