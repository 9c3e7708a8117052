from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.base import PlanningContext, sampled_count
from fedrelay.routes.chains import Chains
from fedrelay.routes.growing_group_count import GrowingGroupCount
from fedrelay.routes.singletons import Singletons


def dealt(count, key):
    """Groups of forty clients that tell under which key they were formed."""
    return tuple(tuple((client + key) % 40 for client in range(group, 40, count)) for group in range(count))


def context(fraction=0.2, seed=1, rounds=30):
    return PlanningContext(40, fraction, seed, (), rounds, regroup=dealt)


@given(st.integers(1, 30), st.integers(0, 2**40))
def test_without_growth_it_is_fedseq_with_the_first_groups(round, seed):
    found = GrowingGroupCount(alpha=0, beta=5).plan(context(seed=seed), round)
    fixed = PlanningContext(40, 0.2, seed, dealt(5, 1))
    assert found == Chains().plan(fixed, round)


def test_one_client_a_group_is_fedavg():
    found = GrowingGroupCount(growth="constant", beta=40).plan(context(), 3)
    clients = {route.clients for route in found.routes}
    groups = dealt(40, 1)
    assert clients == {groups[route.clients[0]] for route in Singletons().plan(context(), 3).routes}


def test_groups_are_formed_anew_when_their_number_grows_or_always():
    keys: list[tuple[int, int]] = []
    noting = PlanningContext(
        40, 1.0, 1, (), 30, regroup=lambda count, key: keys.append((count, key)) or dealt(count, key)
    )
    for round in range(1, 31):
        GrowingGroupCount(growth="linear", alpha=0.5, beta=3).plan(noting, round)
    counts = [count for count, _ in keys]
    assert counts[:6] == [3, 3, 6, 6, 9, 9]
    assert [key for _, key in keys][:7] == [1, 1, 3, 3, 5, 5, 7]
    keys.clear()
    for round in range(1, 5):
        GrowingGroupCount(growth="linear", alpha=0.5, beta=3, regroup="always").plan(noting, round)
    assert keys == [(3, 1), (3, 2), (6, 3), (6, 4)]


def test_a_step_spares_groupings():
    keys: list[tuple[int, int]] = []
    noting = PlanningContext(
        40, 1.0, 1, (), 30, regroup=lambda count, key: keys.append((count, key)) or dealt(count, key)
    )
    for round in range(1, 31):
        GrowingGroupCount(growth="linear", alpha=1, beta=2, step=0.5).plan(noting, round)
    assert sorted(set(keys)) == [(2, 1), (4, 2), (6, 3), (10, 5), (16, 8), (24, 12), (36, 18), (40, 20)]


def test_by_default_the_last_round_has_almost_as_many_groups_as_clients():
    counts = [GrowingGroupCount().count(context(), round) for round in range(1, 31)]
    assert counts[0] == 5
    assert counts == sorted(counts)
    assert counts[-1] in (35, 40)


@pytest.mark.parametrize(("fraction", "beta", "total"), [(0.3, 10, 24), (0.5, 20, 40)])
def test_a_relayed_round_costs_two_transfers_a_client(fraction, beta, total):
    plan = GrowingGroupCount(growth="log", beta=beta, handover="server", regroup="always").plan(context(fraction), 1)
    found = transfer_totals(plan, {"model": 1})
    assert (found.s2c, found.c2s, found.c2c) == (total // 2, total // 2, 0)
    assert len(plan.routes) == sampled_count(beta, fraction)


def test_a_fixed_order_is_that_of_the_group():
    fixed = PlanningContext(9, 1.0, 1, ((0, 1, 2), (5, 4, 3)))
    plans = [Chains(order="fixed", loops=2).plan(fixed, round) for round in (1, 2)]
    for plan in plans:
        assert {route.clients for route in plan.routes} == {(0, 1, 2, 0, 1, 2), (5, 4, 3, 5, 4, 3)}


@pytest.mark.parametrize(
    ("pace", "clients", "rounds", "counts"),
    [
        ("paper", 368, 500, {1: 10, 2: 20, 10: 50, 500: 130}),
        ("federation", 368, 500, {1: 10, 2: 20, 10: 50, 500: 130}),
        ("paper", 100, 60, {1: 10, 2: 20, 10: 50, 60: 90}),
        ("federation", 100, 60, {1: 3, 2: 6, 10: 15, 60: 27}),
        ("full-parallel", 100, 60, {1: 5, 2: 10, 10: 25, 60: 45}),
    ],
)
def test_the_pace_of_fedgsp(pace, clients, rounds, counts):
    route, here = GrowingGroupCount(growth="log", pace=pace), PlanningContext(clients, 0.3, 1, (), rounds)
    assert {round: route.count(here, round) for round in counts} == counts


def test_what_is_given_goes_before_the_pace():
    here = PlanningContext(100, 0.3, 1, (), 60)
    assert GrowingGroupCount(growth="log", pace="federation", beta=7).count(here, 1) == 7
    assert GrowingGroupCount(growth="log", pace="federation", alpha=0).count(here, 60) == 3


def test_a_note_says_when_chains_shrink_to_single_clients():
    def note(clients, rounds, **route):
        return GrowingGroupCount(growth="log", **route).planning_warning(PlanningContext(clients, 0.3, 1, (), rounds))

    assert note(100, 60, pace="paper").startswith("route: from round 13 of 60 on, there are more groups than half of")
    assert note(100, 10, pace="paper") is None  # exactly half in round 10
    assert note(100, 60, pace="federation") is None
    assert note(100, 60, pace="federation", beta=51).startswith("route: from round 1 of 60 on")
    assert note(100, 60, pace="full-parallel", beta=60) is None  # FedSeq2Par is meant to
    assert note(1, 60, pace="federation") is None


@pytest.mark.parametrize("growth", ["linear", "log", "exp"])
@pytest.mark.parametrize(("clients", "rounds"), [(20, 10), (100, 60), (368, 500), (37, 25)])
def test_the_growth_that_scales_with_the_federation_needs_no_note(growth, clients, rounds):
    route = GrowingGroupCount(growth=growth, pace="federation")
    assert route.planning_warning(PlanningContext(clients, 0.3, 1, (), rounds)) is None
