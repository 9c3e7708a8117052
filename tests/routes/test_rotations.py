from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.all_to_all import AllToAll
from fedrelay.routes.base import PlanningContext, sampled_count
from fedrelay.routes.rotations import Rotations
from fedrelay.routes.singletons import Singletons


@given(st.integers(1, 25), st.floats(0.1, 1), st.integers(0, 2**40), st.integers(1, 50), st.booleans())
def test_rotations_are_a_cyclic_latin_square(clients, fraction, seed, round, reshuffle):
    plan = Rotations(reshuffle=reshuffle).plan(PlanningContext(clients, fraction, seed), round)
    count = sampled_count(clients, fraction)
    assert len(plan.routes) == count
    everybody = sorted(plan.routes[0].clients)
    for turn in range(count):  # at every turn all are at different clients
        assert sorted(route.clients[turn] for route in plan.routes) == everybody
    first = plan.routes[0].clients
    assert [route.clients for route in plan.routes] == [first[n:] + first[:n] for n in range(count)]


@pytest.mark.parametrize(("clients", "total"), [(1, 2), (3, 12), (10, 110)])
def test_rotations_cost_m_times_m_plus_one_transfers(clients, total):
    found = transfer_totals(Rotations().plan(PlanningContext(clients, 1.0, 1), 1), {"model": 1})
    assert (found.s2c, found.c2s, found.c2c) == (clients, clients, clients * (clients - 1))
    assert found.total == total


def test_the_order_stays_unless_it_is_reshuffled():
    context = PlanningContext(10, 1.0, 1)
    assert Rotations().plan(context, 1).routes == Rotations().plan(context, 2).routes
    assert Rotations(reshuffle=True).plan(context, 1).routes != Rotations(reshuffle=True).plan(context, 2).routes


def test_random_orders_visit_every_client_once():
    context = PlanningContext(8, 1.0, 1)
    plan = Rotations(orders="random").plan(context, 1)
    assert all(sorted(route.clients) == list(range(8)) for route in plan.routes)
    assert len({route.clients for route in plan.routes}) == 8
    assert plan.routes == Rotations(orders="random").plan(context, 2).routes
    assert plan.routes != Rotations(orders="random", reshuffle=True).plan(context, 2).routes


def test_one_client_alone_is_fedavg():
    context = PlanningContext(1, 1.0, 1)
    assert Rotations().plan(context, 1).routes == Singletons().plan(context, 1).routes


@pytest.mark.parametrize(("clients", "fraction", "total"), [(5, 1.0, 20), (10, 0.4, 12), (3, 0.1, 0)])
def test_a_star_sends_every_model_to_everybody_else(clients, fraction, total):
    plan = AllToAll().plan(PlanningContext(clients, fraction, 1), 1)
    found = transfer_totals(plan, {"model": 1})
    assert (found.s2c, found.c2s, found.c2c) == (0, 0, total)
    assert not plan.merges
    assert all(route.clients == (route.slot,) for route in plan.routes)


@pytest.mark.parametrize("options", [{}, {"reshuffle": True}, {"orders": "random"}])
def test_rotations_go_through_those_who_hold_samples(options):
    context = PlanningContext(6, 1.0, 1, has_samples=lambda client: client not in {1, 4})
    routes = [route.clients for route in Rotations(**options).plan(context, 1).routes]
    assert len(routes) == 4
    assert all(sorted(route) == [0, 2, 3, 5] for route in routes)
    if "orders" not in options:
        assert len(set(routes)) == 4


def test_rotations_without_anybody_who_holds_samples():
    assert Rotations().plan(PlanningContext(3, 1.0, 1, has_samples=lambda client: False), 1).routes == ()
