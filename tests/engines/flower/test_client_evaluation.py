"""Nodes evaluate models on their own held-out samples: the same table as in a simulation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import fedrelay as fr
from fedrelay.data.holdout import held_out_samples
from fedrelay.data.node_samples import owner_federation
from fedrelay.engines.flower.connect import _check_data
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import DataSettings

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

SETTINGS = {"rounds": 2, "fraction": 1.0, "seed": 3, "task": "binary", "per_client": 1, "fine_tune": 3, "hidden": (4,)}


@pytest.fixture
def hospitals(make_nodes, use_nodes):
    """Four nodes with the patients of a hospital each, some of them held out; the server has none."""

    def make(**options):
        data = fr.load_data("heart-disease")
        found, held_out = make_nodes(data, test=False, **options), held_out_samples(data)
        for client in range(4):
            arrays = dict(zip(("x", "y"), (part.numpy() for part in data.train_samples(client)), strict=True))
            tests = dict(zip(("x_test", "y_test"), (part.numpy() for part in held_out.of(client)), strict=True))
            own = owner_federation(arrays | tests, classes=2)
            found.data[client] = replace(own, dataset=replace(own.dataset, task="binary"))
        found.restart()
        facts = tuple(service.facts() for service in found.connection.services.values())
        found.remote = replace(found.remote, facts=facts)
        use_nodes(found)
        return found

    return make


@pytest.mark.parametrize("method", ["fedavg", "fedcyclic", "local"])
def test_the_table_of_nodes_is_that_of_a_simulation(method, hospitals, tmp_path):
    hospitals()
    there = fr.run(method, engine="flower", data="nodes", out=tmp_path / "run", **SETTINGS)
    here = fr.run(method, data="heart-disease", workers=1, **SETTINGS)
    assert len(there.client_rows) == len(here.client_rows) == 8
    for found, expected in zip(there.client_rows, here.client_rows, strict=True):
        assert found["name"] == f"n{expected['client']:02d}"
        for kind in ("scores", "fine_tuned"):
            assert found[kind] == pytest.approx(expected[kind], abs=1e-6)
        assert (found["held_out"], found["train_samples"]) == (expected["held_out"], expected["train_samples"])
    assert there.clients.resamples == {}
    lines = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [line["s2c"] for line in lines if line.get("evaluation")] == [4, 4]


def test_one_request_serves_the_whole_evaluation_and_that_of_single_nodes(hospitals):
    found = hospitals()
    asked = []

    def watched(respond):
        def answer(request):
            asked.append(request.header["kind"])
            return respond(request)

        return answer

    for service in found.connection.services.values():
        service.respond = watched(service.respond)
    result = fr.run("fedavg", engine="flower", data="nodes", **SETTINGS | {"fine_tune": 0})
    assert asked.count("evaluate") == 2 * 4
    sums = sum(row["scores"]["accuracy"] * row["held_out"] for row in result.clients.lines)
    assert result.history[-1]["accuracy"] == pytest.approx(sums / 185)


def test_no_scores_of_fewer_samples_than_the_owner_allows_leave_a_node(hospitals):
    hospitals(min_evaluated=30)
    result = fr.run("fedavg", engine="flower", data="nodes", **SETTINGS)
    assert result.clients.not_evaluated == {"n02": "it holds out none"}  # Switzerland has 25
    assert result.clients.lines[2]["scores"] == {}
    hospitals(min_evaluated=60)
    result = fr.run("fedavg", engine="flower", data="nodes", **SETTINGS)
    assert list(result.clients.not_evaluated) == ["n01", "n02", "n03"]


def test_a_node_declines_to_evaluate_fewer_samples_whatever_the_server_asks(hospitals):
    found = hospitals()
    result = fr.run("fedavg", engine="flower", data="nodes", **SETTINGS)
    for service in found.connection.services.values():
        service.min_evaluated = 40  # after it has said how many it holds out
    result = fr.run("fedavg", engine="flower", data="nodes", **SETTINGS)
    assert list(result.clients.not_evaluated) == ["n02"]
    assert "at least 40 samples (--min-evaluated)" in result.clients.not_evaluated["n02"]


def test_without_held_out_samples_clients_cannot_be_evaluated(make_nodes, use_nodes):
    use_nodes(make_nodes(fr.load_data("heart-disease")))
    with pytest.raises(SpecError, match=r"eval\.per_client: no client has held-out samples; start nodes with"):
        fr.run("fedavg", engine="flower", data="nodes", **SETTINGS | {"task": "classification"})
    with pytest.raises(SpecError, match=r"data\.holdout: with engine 'flower' owners decide"):
        _check_data(DataSettings(holdout=0.2))
