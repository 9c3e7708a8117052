from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost.ledger import transfer_totals
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
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


def regrouped(count, key):
    """Nine clients in other groups each time; as many as are asked for, or one less or more."""
    order = np.random.default_rng(key).permutation(9).tolist()
    return tuple(map(tuple, (part.tolist() for part in np.array_split(order, count + (key % 3 - 1)))))


@given(st.integers(0, 2**40), st.floats(0.1, 1.0), st.integers(0, 20))
def test_with_new_groups_every_client_trains_once_in_each_pass(seed, fraction, number):
    context = PlanningContext(9, fraction, seed, GROUPS, regroup=regrouped, sampling="passes")
    rounds = -(-3 // max(1, int(3 * fraction + 1e-9)))
    plans = [Chains(regroup="pass").plan(context, number * rounds + place + 1) for place in range(rounds)]
    assert all(plan.routes for plan in plans)
    assert sorted(client for plan in plans for route in plan.routes for client in route.clients) == list(range(9))
    counts = [len(plan.routes) for plan in plans]
    assert max(counts) - min(counts) <= 1


def test_the_groups_of_the_first_pass_are_those_formed_before_round_1():
    settings = {"grouping.assign": "icg", "sampling": "passes", "route.regroup": "pass", "fraction": 1.0}
    run = prepare(experiment("fedseq", clients=30, **settings))
    routes = [{tuple(sorted(each.clients)) for each in run.planner.plan(round).routes} for round in (1, 2)]
    assert routes[0] == {tuple(sorted(group)) for group in run.prepared.groups} != routes[1]
