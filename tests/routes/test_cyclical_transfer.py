from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedrelay.routes.base import PlanningContext
from fedrelay.routes.cyclical_transfer import CyclicalTransfer
from fedrelay.routes.ring import Ring


def clients(context, round, **options):
    (route,) = CyclicalTransfer(**options).plan(context, round).routes
    return route.clients


def test_a_round_goes_on_where_the_last_one_ended():
    context = PlanningContext(5, 0.6, 1)
    assert [clients(context, round) for round in (1, 2, 3)] == [(0, 1, 2), (3, 4, 0), (1, 2, 3)]


@given(st.integers(1, 20), st.floats(0.01, 1.0), st.integers(0, 2**40), st.sampled_from(["fixed", "random", "size"]))
def test_hops_repeat_one_order_of_all_clients(count, fraction, seed, order):
    context = PlanningContext(count, fraction, seed)
    visited = [client for round in range(1, 2 * count + 1) for client in clients(context, round, order=order)]
    cycle = visited[:count]
    assert sorted(cycle) == list(range(count))
    assert visited == (cycle * (len(visited) // count + 1))[: len(visited)]


def test_with_all_clients_it_is_fedcyclic_in_fixed_order():
    context = PlanningContext(7, 1.0, 1)
    assert CyclicalTransfer().plan(context, 4) == Ring(order="fixed").plan(context, 4)


def test_a_shuffled_order_depends_on_the_seed():
    assert len({clients(PlanningContext(9, 1.0, seed), 1, order="random") for seed in range(5)}) == 5
