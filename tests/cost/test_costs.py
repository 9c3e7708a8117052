"""Costs that follow from the plan alone, against closed forms: transfers, T_comp, T_comm and D_comm."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import make_federation
from tests.cost import closed_forms as cost
from tests.cost.closed_forms import Exchanges, FedGspCosts, equal_chains

import fedrelay as fr
from fedrelay.experiment.prepare import PreparedRun, prepare
from fedrelay.experiment.spec import experiment
from fedrelay.report.terminal.plan import plan_report
from fedrelay.routes.base import sampled_count

SAMPLES = 4
ROUNDS = 3

SETTINGS = [(12, 0.5, 4), (20, 0.25, 5), (30, 0.34, 6), (8, 1.0, 2)]
"""Clients, the share of clients or groups that take part, and groups, all of the same size."""


def run_of(method: str, clients: int, **settings) -> PreparedRun:
    settings = {"rounds": ROUNDS, "workers": 1, **settings}
    federation = make_federation([SAMPLES] * clients)
    return prepare(experiment(method, **settings), federation=federation, module=torch.nn.Linear(4, 3))


def closed_groups(clients: int, groups: int) -> dict[str, object]:
    return {"grouping.max_clients": clients // groups, "grouping.min_samples": 10**6}


def constant_groups(clients: int, groups: int) -> dict[str, object]:
    return {"route.growth": "constant", "route.beta": groups}


def no_groups(clients: int, groups: int) -> dict[str, object]:
    return {}


def parallel(clients: int, members: int, chains: int, round: int) -> Exchanges:
    return cost.parallel_exchanges(members)


def doubled(clients: int, members: int, chains: int, round: int) -> Exchanges:
    return cost.parallel_exchanges(members, payloads=2)


def chained(clients: int, members: int, chains: int, round: int) -> Exchanges:
    return cost.chain_exchanges([clients] * chains)


def relayed(clients: int, members: int, chains: int, round: int) -> Exchanges:
    return cost.relayed_exchanges(clients * chains)


PLAIN = ("fedavg", "fedprox", "feddyn", "moon", "fednova", "feddisco", "fedadam", "ida")
CHAINS = ("fedseq", "fedseqinter", "fedasyncseq", "astraea", "fedseqinter+fedprox")
CLOSED_FORMS = {
    **dict.fromkeys(PLAIN, (no_groups, parallel)),
    **dict.fromkeys(("scaffold", "feddc"), (no_groups, doubled)),
    **dict.fromkeys(CHAINS, (closed_groups, chained)),
    "fedseq2par": (constant_groups, chained),
    "fedgsp": (constant_groups, relayed),
    "naivegsp": (closed_groups, relayed),
    "naivegsp-icg": (lambda clients, groups: {"grouping.groups": groups}, relayed),
    "fedcyclic": (no_groups, lambda _, members, *__: cost.ring_exchanges(members)),
    "spfl": (no_groups, lambda _, members, *__: cost.rotation_exchanges(members)),
    "fedstar": (no_groups, lambda _, members, *__: cost.star_exchanges(members)),
    "ewc": (no_groups, lambda _, members, __, round: cost.fisher_ring_exchanges(members, first=round == 1)),
}


@pytest.mark.parametrize(("clients", "fraction", "groups"), SETTINGS)
@pytest.mark.parametrize("method", CLOSED_FORMS)
def test_transfers_of_every_method(method, clients, fraction, groups):
    options, closed_form = CLOSED_FORMS[method]
    run = run_of(method, clients, fraction=fraction, **options(clients, groups))
    members, chains = sampled_count(clients, fraction), sampled_count(groups, fraction)
    expected = [closed_form(clients // groups, members, chains, round) for round in range(1, ROUNDS + 1)]
    reports = [plan_report(run, round) for round in range(1, ROUNDS + 1)]
    assert [tuple(report["transfers"].values()) for report in reports] == expected
    told = clients if run.prepared.method.needs_class_counts else 0
    sums = [sum(kind) for kind in zip(*expected, strict=True)]
    assert tuple(reports[0]["total"]["transfers"].values()) == (sums[0], sums[1] + told, sums[2])


@pytest.mark.parametrize("count", [3, 7])
def test_transfers_of_wfsl(count):
    select = {"by": "genetic", "count": count, "population": 4, "iterations": 1}
    run = run_of("wfsl", 9, rounds=2, warmup={"cycles": 1, "select": select}, fraction=0.4)
    cycle, federated = plan_report(run, 1), plan_report(run, 2)
    assert tuple(cycle["transfers"].values()) == cost.relayed_exchanges(count)
    assert tuple(federated["transfers"].values()) == cost.parallel_exchanges(3)
    assert tuple(cycle["setup"]["transfers"].values()) == cost.relayed_exchanges(9)


FEDGSP = FedGspCosts()


def costs_of(method: str, clients: int, **settings) -> tuple[dict[str, float], int]:
    """What the rounds of a method cost on FedGSP's devices, and the bytes of its model."""
    run = run_of(method, clients, clock={"profile": "fedgsp"}, **settings)
    return run.costs.total(run.planner.plan(round) for round in range(1, ROUNDS + 1)), run.prepared.layout.bytes


def test_the_cost_of_fedgsp_is_its_paper_s():
    growth = {"route.growth": "linear", "route.alpha": 1, "route.beta": 2}
    found, size = costs_of("fedgsp", 12, fraction=0.5, epochs=2, **growth)
    model = FedGspCosts(clients=12, fraction=0.5, epochs=2, model_bytes=size)
    assert found["computing_seconds"] == pytest.approx(model.computing_seconds(equal_chains([2, 4, 6], 12, SAMPLES)))
    assert found["communicating_seconds"] == pytest.approx(model.communicating_seconds(ROUNDS))
    assert found["bytes"] == pytest.approx(model.traffic_bytes(ROUNDS))


def test_the_cost_of_fedavg():
    found, size = costs_of("fedavg", 12, fraction=0.25)
    model = FedGspCosts(clients=12, fraction=0.25, model_bytes=size)
    assert found["computing_seconds"] == pytest.approx(model.computing_seconds(equal_chains([12] * 3, 12, SAMPLES)))
    assert found["communicating_seconds"] == pytest.approx(model.communicating_seconds(ROUNDS))
    assert found["bytes"] == model.traffic_bytes(ROUNDS) == 3 * 6 * size


@pytest.mark.parametrize(
    ("method", "settings", "longest", "models", "transfers"),
    [
        # Two of four groups of three: 2 down, 4 handed over, 2 up.
        ("fedseq", {"fraction": 0.5, **closed_groups(12, 4)}, 3, 2, 8),
        ("spfl", {"fraction": 1.0}, 12, 12, 12 * 13),
    ],
)
def test_the_cost_of_chains(method, settings, longest, models, transfers):
    found, size = costs_of(method, 12, **settings)
    step, merge = FEDGSP.sample_flops / FEDGSP.flops, FEDGSP.merge_flops / FEDGSP.flops
    assert found["computing_seconds"] == pytest.approx(ROUNDS * (longest * SAMPLES * step + (models - 1) * merge))
    assert found["communicating_seconds"] == pytest.approx(ROUNDS * transfers * 8 * size / FEDGSP.bits_in)
    assert found["bytes"] == ROUNDS * transfers * size


def test_virtual_time_lies_between_computing_and_all_of_it():
    found, _ = costs_of("fedseq", 12, fraction=0.5, **closed_groups(12, 4))
    computing, communicating = found["computing_seconds"], found["communicating_seconds"]
    assert found["virtual_seconds"] == pytest.approx(computing + communicating / 2)  # two equal chains, side by side


def test_a_run_has_the_costs_of_its_plan():
    settings = {"rounds": ROUNDS, "workers": 1, "fraction": 0.5, "clock": {"profile": "fedgsp"}}
    result = fr.run("feddisco", data=make_federation([SAMPLES] * 6), model=torch.nn.Linear(4, 3), **settings)
    run = run_of("feddisco", 6, fraction=0.5, clock={"profile": "fedgsp"})
    total = plan_report(run, 1)["total"]
    for name in ("virtual_seconds", "idle_seconds", "computing_seconds", "communicating_seconds", "bytes"):
        assert getattr(result, name) == pytest.approx(total[name]), name
        assert result.summary()[name] == getattr(result, name)


@pytest.mark.parametrize(
    ("method", "paid"), [("fedavg", True), ("fedseq", True), ("fedstar", True), ("centralized", False)]
)
def test_frozen_parameters_are_sent_once_to_every_client_with_samples(partly_frozen, method, paid):
    federation = make_federation([4, 4, 0, 4, 4])
    run = prepare(experiment(method, rounds=2), federation=federation, module=partly_frozen)
    setup = run.costs.setup_line()
    if not paid:
        assert setup is None
        return
    assert setup["payloads"] == {"frozen parameters": 4 * 4 * 35}
    assert (setup["s2c"], setup["c2s"], setup["c2c"], setup["bytes"]) == (4, 0, 0, setup["s2c_bytes"])
    device = run.costs.devices(0)
    assert setup["virtual_seconds"] == pytest.approx(8 * 4 * 35 / device.down + device.latency)
    assert run.costs.payloads == {"model": 4 * (18 + 11)}


def test_frozen_parameters_come_before_the_profiles(partly_frozen):
    grouping = {"assign": "greedy", "profile": "clf", "max_clients": 2, "min_samples": 100}
    wanted = experiment("fedseq", rounds=1, grouping=grouping, workers=1)
    run = prepare(wanted, federation=make_federation([4] * 4), module=partly_frozen)
    assert run.costs.setup_line()["payloads"] == {
        "frozen parameters": 4 * 4 * 35,
        "model": 4 * 4 * (18 + 11) + 4 * 4 * 15,  # down, and the weights of the one trained linear layer up
    }
