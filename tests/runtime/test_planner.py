"""Plans of a run: plain data, the same in any order."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS as CATALOGUE
from fedrelay.experiment.method_catalogue import MethodEntry
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


class Drawn(fr.Routing):
    """The obvious way to draw clients: NumPy's own numbers."""

    number: int = 0

    def plan(self, context, round):
        drawn = context.rng("drawn", round).permutation(context.client_count)[:3]
        return fr.RoundPlan(round + self.number, (fr.Route(tuple(drawn)),))


def test_numbers_of_numpy_in_an_own_route_do_not_reach_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "drawn", MethodEntry("", route=Drawn))
    result = fr.run("drawn", clients=6, rounds=2, workers=1, out=tmp_path / "run")
    assert result.client_updates == 6
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [len(line["routes"][0]) for line in lines] == [3, 3]


def test_an_own_route_must_plan_the_round_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(CATALOGUE, "drawn", MethodEntry("", route=Drawn))
    message = "route 'Drawn', plan: ValueError: must plan round 1, got a plan of round 3"
    with pytest.raises(fr.SpecError, match=message):
        fr.run("drawn", clients=6, rounds=2, workers=1, out=tmp_path / "run", route={"number": 2})
    assert not (tmp_path / "run").exists()
