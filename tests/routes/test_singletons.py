from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.base import PlanningContext, sampled_count
from fedrelay.routes.singletons import Singletons


@given(st.integers(1, 60), st.floats(0.01, 1), st.integers(0, 2**40), st.integers(1, 500))
def test_singletons_visit_distinct_clients_once(clients, fraction, seed, round):
    plan = Singletons().plan(PlanningContext(clients, fraction, seed), round)
    visited = [route.clients[0] for route in plan.routes]
    assert all(len(route.clients) == 1 for route in plan.routes)
    assert len(set(visited)) == len(visited) == sampled_count(clients, fraction)
    assert set(visited) <= set(range(clients))
    found = transfer_totals(plan, {"model": 1})
    assert (found.s2c, found.c2s, found.c2c) == (len(visited), len(visited), 0)
