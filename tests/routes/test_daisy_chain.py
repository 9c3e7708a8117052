from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import fedrelay as fr
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.daisy_chain import DaisyChain

WHOLE = PlanningContext(12, 1.0, 1)


def clients(route, round, context=WHOLE):
    return tuple(each.clients[0] for each in route.plan(context, round).routes)


@given(st.integers(1, 4), st.integers(1, 30))
def test_models_are_dealt_anew_every_few_rounds(every, round):
    route = DaisyChain(every=every)
    assert sorted(clients(route, round)) == list(range(12))
    moves = round % every == 0
    assert (clients(route, round + 1) != clients(route, round)) == moves


def test_models_wait_in_their_slots_until_the_period_is_over():
    plans = [DaisyChain(period=3).plan(WHOLE, round) for round in range(1, 8)]
    assert [plan.merges for plan in plans] == [False, False, True, False, False, True, False]
    assert [plan.routes[0].continues for plan in plans] == [False, True, True, False, True, True, False]
    assert all([route.slot for route in plan.routes] == list(range(12)) for plan in plans)


def test_a_fraction_of_clients_has_fewer_models():
    assert len(set(clients(DaisyChain(), 3, PlanningContext(12, 0.25, 1)))) == 3


def test_a_merge_in_every_round_is_fedavg(toy):
    settings = {"data": toy, "rounds": 3, "fraction": 0.7, "workers": 1, "merge": {"weights": "uniform"}}
    daisy = fr.run("daisy-chain", route={"period": 1}, **settings)
    plain = fr.run("fedavg", **settings)
    assert daisy.weights_sha256 == plain.weights_sha256
    assert daisy.transfers == plain.transfers
