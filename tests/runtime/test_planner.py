"""Plans of a run: plain data, the same in any order."""

from __future__ import annotations

import pickle

import pytest
import torch
from tests.conftest import make_federation

from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment

METHODS = [
    "fedavg",
    "fedcyclic",
    "fedstar",
    "fedseq",
    "fedseqinter",
    "fedasyncseq",
    "fedseq2par",
    "fedgsp",
    "spfl",
    "wfsl",
]


def planner_of(method, **settings):
    warmup = {"warmup.cycles": 2} if method == "wfsl" else {}
    wanted = experiment(method, rounds=4, fraction=0.5, workers=1, **warmup, **settings)
    federation = make_federation([5, 0, 3, 8, 4, 7, 6, 2])
    return prepare(wanted, federation=federation, module=torch.nn.Linear(4, 3)).planner


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_is_plain_data_and_any_round_can_be_planned_at_any_time(method):
    planner = planner_of(method)
    plans = [planner.plan(round) for round in (1, 2, 3, 4)]
    assert [planner.plan(round) for round in (4, 3, 2, 1)] == plans[::-1]
    assert pickle.loads(pickle.dumps(plans)) == plans  # nothing but values
    assert all(client != 1 for plan in plans for route in plan.routes for client in route.clients)  # has no samples


def test_a_route_continues_only_if_a_model_waits_in_its_slot():
    planner = planner_of("fedseqinter", **{"grouping.max_clients": 2, "route.period": 4})
    expected = planner.plan(2)
    assert all(route.continues for route in expected.routes)
    slots = [route.slot for route in expected.routes]
    assert planner.plan(2, slots) is not None
    assert planner.plan(2, slots) == expected
    assert [route.continues for route in planner.plan(2, slots[:1]).routes] == [slot in slots[:1] for slot in slots]
