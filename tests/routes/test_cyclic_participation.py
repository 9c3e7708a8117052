from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fedrelay.routes.base import PlanningContext
from fedrelay.routes.cyclic_participation import CyclicParticipation

GROUPS = ((0, 1, 2, 3), (4, 5), (6, 7, 8, 9, 10, 11))


def clients(context, round):
    return [client for route in CyclicParticipation().plan(context, round).routes for client in route.clients]


@given(st.integers(0, 2**40), st.integers(1, 50))
def test_groups_take_turns(seed, round):
    found = clients(PlanningContext(12, 0.25, seed, GROUPS), round)  # three clients, or a whole group
    group = GROUPS[(round - 1) % 3]
    assert set(found) <= set(group)
    assert len(set(found)) == len(found) == min(3, len(group))


def test_samples_of_a_group_differ_from_turn_to_turn():
    context = PlanningContext(12, 0.25, 1, GROUPS)
    assert len({frozenset(clients(context, 3 * turn)) for turn in range(1, 9)}) > 3


def test_in_passes_all_clients_of_a_group_take_part_before_any_does_again():
    context = PlanningContext(12, 0.25, 1, GROUPS, sampling="passes")
    counts = Counter(client for turn in range(4) for client in clients(context, 3 * turn + 3))
    assert counts == dict.fromkeys(GROUPS[2], 2)


def test_every_route_is_one_client_that_starts_with_the_global_model():
    plan = CyclicParticipation().plan(PlanningContext(12, 1.0, 1, GROUPS), 1)
    assert [len(route.clients) for route in plan.routes] == [1, 1, 1, 1]
    assert plan.merges
    assert all(route.slot is None for route in plan.routes)
