from __future__ import annotations

import pytest
import torch

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.report.terminal.plan import plan_report
from fedrelay.routes.arrival import Arrival, HopReport


def shared_raw(toy, **warmup):
    options = {"ratio": 0.34, "pretrain": 1, **warmup}
    return prepare(experiment("shared-raw", rounds=3, fraction=1.0, warmup=options), federation=toy)


@pytest.mark.parametrize(("weights", "expected"), [("own", [5, 9, 3, 8, 4, 7]), ("all", [14, 16, 12, 16, 13, 15])])
def test_shared_raw_weights_clients_by_their_own_samples_by_default(toy, weights, expected):
    prepared = shared_raw(toy, weights=weights).prepared
    assert prepared.federation.sample_counts().tolist() == [14, 16, 12, 16, 13, 15]
    hops = [HopReport(prepared.federation.sample_count(client), 1, 0.0) for client in range(7)]
    arrivals = [Arrival(client, (client,), torch.zeros(1), (hop,)) for client, hop in enumerate(hops)]
    counted = [
        prepared.method.warmup.arrival_with_sample_count_for_merge(arrival, prepared.federation).samples
        for arrival in arrivals
    ]
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
