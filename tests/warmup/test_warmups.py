"""Warm-ups as whole runs: what they count by, what they share, and how long they take to choose clients."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.report.terminal.plan import plan_report
from fedrelay.report.terminal.run_tables import result_table
from fedrelay.routes.arrival import Arrival, HopReport

GENETIC = {"cycles": 2, "select": {"by": "genetic", "count": 3, "population": 6, "iterations": 2}}


def shared_raw(toy, **warmup):
    options = {"ratio": 0.34, "pretrain": 1, **warmup}
    return prepare(experiment("shared-raw", rounds=3, fraction=1.0, warmup=options), federation=toy)


@pytest.mark.parametrize(("weights", "expected"), [("own", [5, 9, 3, 8, 4, 7]), ("all", [14, 16, 12, 16, 13, 15])])
def test_shared_raw_weights_clients_by_their_own_samples_by_default(toy, weights, expected):
    prepared = shared_raw(toy, weights=weights).prepared
    assert prepared.federation.sample_counts().tolist() == [14, 16, 12, 16, 13, 15]
    hops = [HopReport(prepared.federation.sample_count(client), 1, 0.0) for client in range(7)]
    arrivals = [Arrival(client, (client,), torch.zeros(1), (hop,)) for client, hop in enumerate(hops)]
    counted = [prepared.method.warmup.with_merge_samples(arrival, prepared.federation).samples for arrival in arrivals]
    assert counted == [*expected, 10]  # the server's hop as it is


def test_shared_raw_weights_make_a_difference(toy):
    settings = {"data": toy, "model": {"name": "mlp", "hidden": (3,)}, "rounds": 2, "fraction": 1.0, "workers": 1}
    own, both = (
        fr.run("shared-raw", warmup={"ratio": 0.34, "pretrain": 0, "weights": weights}, **settings)
        for weights in ("own", "all")
    )
    assert not torch.equal(own.weights, both.weights)


def test_a_plan_says_what_is_shared_and_who_trains_on_it(toy):
    report = plan_report(shared_raw(toy), 1)
    assert report["routes"] == [["server"]]
    sample = 4 * 4 + 8
    assert report["setup"]["payloads"] == {"samples": 10 * sample * (1 + 6)}
    assert report["setup"]["transfers"] == {"s2c": 6, "c2s": 6, "c2c": 0}
    # The one that shares most decides how long it takes to send, then everybody gets the same.
    up, down = 8 * 3 * sample / 2e7 + 0.05, 8 * 10 * sample / 1e8 + 0.05
    assert report["setup"]["virtual_seconds"] == pytest.approx(up + down)
    assert plan_report(shared_raw(toy), 2)["routes"] != [["server"]]


def test_the_time_of_a_genetic_selection_is_recorded(tmp_path):
    settings = {"model": {"name": "mlp", "hidden": (3,)}, "rounds": 3, "fraction": 0.5, "workers": 1}
    federation = make_federation([3] * 8)
    result = fr.run("wfsl", data=federation, warmup=GENETIC, out=tmp_path / "run", **settings)
    lines = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert ["selection_seconds" in line for line in lines] == [True, True, False]
    told = sum(line.get("selection_seconds", 0) for line in lines)
    assert result.selection_seconds == pytest.approx(told, abs=1e-3)
    assert result.summary()["selection_seconds"] == pytest.approx(told, abs=2e-3)
    again = fr.resume(tmp_path / "run", data=federation)
    assert again.selection_seconds == pytest.approx(told)
    assert torch.equal(again.weights, result.weights)
    console = Console(width=80)
    with console.capture() as shown:
        console.print(result_table(result))
    assert "choosing clients" in shown.get()


def test_without_a_search_no_time_is_recorded(toy):
    result = fr.run("wfsl", data=toy, warmup={"cycles": 1}, rounds=2, workers=1)
    assert result.selection_seconds == 0
