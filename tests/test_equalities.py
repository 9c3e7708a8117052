"""Methods that must be the same thing: whole runs on toy clients, bit for bit unless said otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.models.flat_layout import weights_sha256

CLIENTS = 12


@pytest.fixture(scope="module")
def alike():
    """Twelve clients with ten samples each, of one or two classes."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(CLIENTS) % 4, 10)
    x = (rng.normal(size=(4, 6))[y] + rng.normal(size=(len(y), 6))).astype(np.float32)
    owners = np.repeat(np.arange(CLIENTS), 10).tolist()
    return fr.federate(x, y, x[:40], y[:40], client_ids=owners, partition="natural")


@pytest.fixture(scope="module")
def weights_of(alike):
    """The weights after a few rounds of a method."""

    def run(method: str, rounds: int = 4, **settings):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))
        # One lane, because terms that cannot be stacked are compared with none, which can.
        common = {"batch_size": 4, "lr": 0.1, "workers": 1, "lanes": 1, "fraction": 0.5, "eval": {"every": 100}}
        return fr.run(method, data=alike, model=model, rounds=rounds, **{**common, **settings}).weights

    return run


THREES = {"grouping.max_clients": 3, "grouping.min_samples": 1000}

SAME = {
    "FedSeqInter that merges every round is FedSeq": (
        ("fedseqinter", {**THREES, "route.period": 1}),
        ("fedseq", THREES),
    ),
    "FedAsyncSeq without latencies is FedSeqInter": (
        ("fedasyncseq", {**THREES, "route.mode": "sync", "route.period": 3}),
        ("fedseqinter", {**THREES, "route.period": 3}),
    ),
    "FedAsyncSeq with equal latencies is FedSeqInter": (
        ("fedasyncseq", {**THREES, "route.period": 3}),
        ("fedseqinter", {**THREES, "route.period": 3}),
    ),
    "FedSeq2Par without growth is FedSeq with ICG": (
        ("fedseq2par", {"route.alpha": 0, "route.beta": 4}),
        ("fedseq", {"grouping.assign": "icg", "grouping.groups": 4}),
    ),
    "FedGSP with one client a group is FedAvg with equal weights": (
        ("fedgsp", {"route.growth": "constant", "route.beta": CLIENTS}),
        ("fedavg", {"merge.weights": "uniform"}),
    ),
    "NaiveGSP in random order is FedSeq with equal weights": (
        ("naivegsp", {**THREES, "route.order": "random"}),
        ("fedseq", {**THREES, "merge.weights": "uniform"}),
    ),
    "Shared-Raw that shares nothing is FedAvg": (
        ("shared-raw", {"warmup.ratio": 0, "warmup.pretrain": 0}),
        ("fedavg", {}),
    ),
    "FedACG without look-ahead and pull is FedAvg": (
        ("fedacg", {"terms.prox.mu": 0, "server.lookahead": 0}),
        ("fedavg", {}),
    ),
    "FedAvgM without momentum is FedAvg": (("fedavgm", {"merge.beta": 0}), ("fedavg", {})),
    "FedProx without pull is its route": (("fedseq+fedprox", {**THREES, "terms.prox.mu": 0}), ("fedseq", THREES)),
    "MOON without strength and head is its route": (
        ("spfl+moon", {"terms.contrast.mu": 0, "terms.contrast.projection": 0}),
        ("spfl", {}),
    ),
    "FedMMD without strength is its route": (
        ("fedseq+fedmmd", {**THREES, "terms.mmd.strength": 0}),
        ("fedseq", THREES),
    ),
    "FedDyn by size is FedDyn where all have as many samples": (
        ("spfl+feddyn", {"terms.drift.alpha_by_size": True}),
        ("spfl+feddyn", {}),
    ),
    "EWC without strength is FedCyclic": (("ewc", {"terms.fisher.strength": 0}), ("fedcyclic", {})),
    "GLAM without teachers is its route": (
        ("spfl+glam", {"terms.glam.tau": 0, "terms.glam.rho": 0}),
        ("spfl", {}),
    ),
    "Steps by size and equal ones are the same where all have as many samples": (
        ("fedseq", {**THREES, "steps": "equal"}),
        ("fedseq", {**THREES, "epochs": 1}),
    ),
    "A number of steps is an epoch of as many": (("fedavg", {"steps": 3}), ("fedavg", {"steps": "inverse-size"})),
    "FedTM whose clients are all large is FedAvg first, then FedCyclic": (
        ("fedtm", {"warmup.rounds": 2}),
        ("fedavg-first+fedcyclic", {"warmup.rounds": 2}),
    ),
    "A trimmed mean that cuts nobody off is the plain mean": (
        ("trimmed-mean", {"merge.share": 0}),
        ("fedavg", {"merge.weights": "uniform"}),
    ),
}


@pytest.mark.parametrize("claim", SAME)
def test_the_same_bits(weights_of, claim):
    one, two = (weights_of(method, **settings) for method, settings in SAME[claim])
    assert weights_sha256(one) == weights_sha256(two)


CLOSE = {
    "Momentum after a mean is FedAvgM": (("fedavg", {"server.momentum": 0.9}), ("fedavgm", {})),
    "SPFL makes FedNova the plain mean": (("spfl+fednova", {}), ("spfl", {})),
    "SPFL makes FedDisco the plain mean": (("spfl+feddisco", {}), ("spfl", {})),
    "FedSeq with one client a group is FedAvg": (  # full batches, because each route shuffles in its own way
        ("fedseq", {"grouping.max_clients": 1, "grouping.min_samples": 1, "batch_size": 10}),
        ("fedavg", {"batch_size": 10}),
    ),
}


@pytest.mark.parametrize("claim", CLOSE)
def test_the_same_to_rounding(weights_of, claim):
    one, two = (weights_of(method, fraction=1.0, **settings) for method, settings in CLOSE[claim])
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "rounds", "settings"),
    [
        ("fedavg", 1, {}),
        ("spfl", 1, {}),
        ("fedseq", 1, {**THREES, "route.loops": 2}),
        ("fedseqinter", 3, {**THREES, "fraction": 1.0, "route.period": 3}),
    ],
)
def test_until_the_first_merge_scaffold_corrects_nothing(weights_of, method, rounds, settings):
    corrected, plain = (weights_of(name, rounds=rounds, **settings) for name in (f"{method}+scaffold", method))
    torch.testing.assert_close(corrected, plain, rtol=0, atol=0)


def test_one_group_of_everybody_is_a_ring(alike):
    model = torch.nn.Linear(6, 4)
    settings = {"data": alike, "model": model, "rounds": 1, "fraction": 1.0, "workers": 1}
    plan = fr.plan("fedseq", data=alike, model=model, fraction=1.0, grouping={"max_clients": 12, "min_samples": 9999})
    (order,) = (route.clients for route in plan.routes)
    assert sorted(order) == list(range(CLIENTS))
    chain = fr.run("fedseq", grouping={"max_clients": 12, "min_samples": 9999}, **settings)
    assert chain.transfers == {"s2c": 1, "c2s": 1, "c2c": CLIENTS - 1}


def test_spfl_of_one_client_is_fedavg(alike):
    x, y = alike.test
    one = fr.federate(x, y, x, y, client_ids=[0] * len(y), partition="natural")
    model = torch.nn.Linear(6, 4)
    runs = [fr.run(method, data=one, model=model, rounds=3, fraction=1.0, workers=1) for method in ("spfl", "fedavg")]
    assert weights_sha256(runs[0].weights) == weights_sha256(runs[1].weights)


def test_a_later_phase_does_not_repeat_the_draws_of_an_earlier_one(alike):
    run = prepare(
        experiment("wfsl", rounds=4, warmup={"cycles": 3, "select": {"by": "random", "count": 4}}), federation=alike
    )
    routes = [run.planner.plan(round).routes for round in (1, 2, 3)]
    assert len(set(routes)) == 3
    planner = prepare(
        experiment("fedavg-first", rounds=6, fraction=0.3, warmup={"rounds": 3}), federation=alike
    ).planner
    assert [planner.plan(round).routes for round in (1, 2, 3)] != [planner.plan(round).routes for round in (4, 5, 6)]
