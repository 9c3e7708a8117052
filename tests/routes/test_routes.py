from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost.ledger import transfer_totals
from fedrelay.errors import SpecError
from fedrelay.routes.base import PlanningContext, sampled_count
from fedrelay.routes.centralized import Centralized
from fedrelay.routes.chains import Chains
from fedrelay.routes.ring import Ring
from fedrelay.routes.singletons import Singletons


@pytest.mark.parametrize(
    ("population", "fraction", "count"),
    [(100, 0.2, 20), (9, 0.2, 1), (3, 0.2, 1), (7, 0.5, 3), (100, 0.29, 29), (5, 1.0, 5)],
)
def test_the_sampled_count_is_truncated_and_at_least_one(population, fraction, count):
    assert sampled_count(population, fraction) == count


@given(st.integers(1, 60), st.floats(0.01, 1), st.integers(0, 2**40), st.integers(1, 500))
def test_singletons_visit_distinct_clients_once(clients, fraction, seed, round):
    plan = Singletons().plan(PlanningContext(clients, fraction, seed), round)
    visited = [route.clients[0] for route in plan.routes]
    assert all(len(route.clients) == 1 for route in plan.routes)
    assert len(set(visited)) == len(visited) == sampled_count(clients, fraction)
    assert set(visited) <= set(range(clients))
    found = transfer_totals(plan, {"model": 1})
    assert (found.s2c, found.c2s, found.c2c) == (len(visited), len(visited), 0)


@given(st.integers(1, 60), st.floats(0.01, 1), st.integers(0, 2**40))
def test_a_ring_is_one_route_over_the_same_sample(clients, fraction, seed):
    context = PlanningContext(clients, fraction, seed)
    (route,) = Ring().plan(context, 3).routes
    assert route.clients == tuple(r.clients[0] for r in Singletons().plan(context, 3).routes)


def test_a_fixed_ring_starts_at_the_given_client():
    context = PlanningContext(5, 1.0, 1)
    assert Ring(order="fixed", start=3).plan(context, 1).routes[0].clients == (3, 4, 0, 1, 2)
    with pytest.raises(SpecError, match=r"route\.start: must be less than the number of clients \(5\)"):
        Ring(order="fixed", start=5).plan(context, 1)


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


def test_every_round_can_be_planned_at_any_time():
    context = PlanningContext(30, 0.4, 5, tuple((2 * i, 2 * i + 1) for i in range(15)))
    for route in (Singletons(), Ring(), Chains()):
        ahead = route.plan(context, 7)
        [route.plan(context, round) for round in range(1, 7)]
        assert route.plan(context, 7) == ahead


def test_pooled_training_transfers_nothing():
    plan = Centralized().plan(PlanningContext(1, 0.2, 1), 1)
    assert plan.routes[0].clients == (0,)
    assert transfer_totals(plan, {"model": 1}).total == 0
