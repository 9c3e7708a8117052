"""SCAFFOLD, alone and with FedDyn, which is FedDC: exact numbers, what stays equal forever, and where they end up."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.local.terms.conftest import (
    ROUTES,
    Problem,
    four_rows,
    number,
    plain_pytorch,
    run_hop,
    some_rotations,
    travel_to,
)

from fedrelay.engines.local.executor import ForkedExecutor
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.merge.drift import MeanPlusDrift
from fedrelay.merge.last_route import LastRoute
from fedrelay.merge.mean import Mean
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.plan import Hop

SCAFFOLD, FEDDYN, FEDDC = (ControlVariates(),), (DriftPenalty(alpha=0.5),), (DriftPenalty(alpha=0.5), ControlVariates())


def test_scaffold_on_one_client_by_hand():
    problem = Problem([[1, 1]], SCAFFOLD, lr=0.1, epochs=2)
    zero = number(0.0)
    context = HopContext(
        zero,
        zero,
        {"control": number(0.2)},
        {"control": number(-0.1)},
        {"control": number(9)},
        {"control-change": zero + 0},
    )
    out, left = run_hop(
        problem.job.module, problem.job.federation, SCAFFOLD, hop=Hop(1, 0, 0, 0), received=zero, context=context,
        lr=0.1, epochs=2, task=problem.job.task,
    )  # fmt: skip
    torch.testing.assert_close(out, number(0.133))
    torch.testing.assert_close(left.new_client_state["control"], number(-0.965))
    torch.testing.assert_close(left.payload["control-change"], number(-0.865))


def test_scaffold_divides_by_the_steps_that_were_taken():
    """In round 3 a step is a quarter as long; the gradient that follows from it is the same."""
    zero = number(0.0)
    context = HopContext(zero, zero, *({"control": zero + 0} for _ in range(3)), {"control-change": zero + 0})
    problem = Problem([[1, 1]], SCAFFOLD, lr=0.4)
    out, left = run_hop(
        problem.job.module, problem.job.federation, SCAFFOLD, hop=Hop(3, 0, 0, 0), received=zero, context=context,
        lr=0.4, schedule={"name": "step", "factor": 0.5}, task=problem.job.task,
    )  # fmt: skip
    torch.testing.assert_close(out, number(0.1))
    torch.testing.assert_close(left.new_client_state["control"], number(-1.0))


def routes_of(kind, round):
    return some_rotations(round) if kind == "some" else ROUTES[kind]


@pytest.mark.parametrize("kind", [*ROUTES, "some"])
@pytest.mark.parametrize("terms", [SCAFFOLD, FEDDYN, FEDDC], ids=["scaffold", "feddyn", "feddc"])
def test_the_server_knows_the_mean_of_what_clients_keep(kind, terms):
    problem = Problem(
        four_rows(), terms, MeanPlusDrift() if DriftPenalty in map(type, terms) else Mean(), lr=0.05, epochs=3
    )
    for round in range(1, 6):
        problem.travel(*routes_of(kind, round))
        if "control" in problem.server:
            torch.testing.assert_close(problem.server["control"], problem.mean_state("control"), rtol=0, atol=1e-12)
        if "drift" in problem.memory:
            torch.testing.assert_close(problem.memory["drift"], problem.mean_state("drift"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize(
    ("terms", "merge"),
    [
        (SCAFFOLD, Mean()),
        ((DriftPenalty(alpha=1.0),), MeanPlusDrift()),
        ((DriftPenalty(alpha=1.0), ControlVariates()), MeanPlusDrift()),
    ],
    ids=["scaffold", "feddyn", "feddc"],
)
def test_corrected_clients_find_the_common_optimum(kind, terms, merge):
    problem = Problem(four_rows(), terms, merge, lr=0.2, epochs=2)
    travel_to(problem.optimum, problem, kind, rounds=60)
    assert (problem.weights - problem.optimum).norm() < 1e-6


@pytest.mark.parametrize("kind", ROUTES)
def test_plain_clients_do_not(kind):
    problem = Problem(four_rows(), (), LastRoute() if kind == "ring" else Mean(), lr=0.2, epochs=2)
    for _ in range(20):
        problem.travel(*ROUTES[kind])
    assert 1e-3 < (problem.weights - problem.optimum).norm() < 10


def test_feddc_without_control_is_feddyn_and_starts_as_fedprox():
    dyn = Problem(four_rows(), FEDDYN, MeanPlusDrift(), lr=0.05, epochs=3)
    prox = Problem(four_rows(), (ProximalPenalty(mu=0.5),), Mean(), lr=0.05, epochs=3)
    dc = Problem(four_rows(), FEDDC, MeanPlusDrift(), lr=0.05, epochs=3)
    first = prox.travel(*ROUTES["singletons"])
    for problem in (dyn, dc):
        torch.testing.assert_close(problem.travel(*ROUTES["singletons"]), first, rtol=0, atol=0)


def test_scaffold_starts_as_fedavg():
    plain = Problem(four_rows(), (), Mean(), lr=0.05, epochs=3).travel(*ROUTES["singletons"])
    corrected = Problem(four_rows(), SCAFFOLD, Mean(), lr=0.05, epochs=3).travel(*ROUTES["singletons"])
    assert torch.equal(torch.stack(plain), torch.stack(corrected))


def test_worker_processes_give_the_same_bits():
    found = []
    for executor in ({}, {"executor": lambda job: ForkedExecutor(job, 2)}):
        problem = Problem(four_rows(), FEDDC, MeanPlusDrift(), lr=0.05, epochs=3, **executor)
        for round in range(1, 4):
            problem.travel(*some_rotations(round))
        found.append((problem.weights, problem.server["control"], problem.mean_state("drift")))
        problem.engine.close()
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


SETTINGS = {"lr": 0.1, "batch_size": 4, "epochs": 3}


def test_scaffold_against_plain_pytorch(toy, linear):
    start = FlatLayout.of(linear).flatten(linear)
    everybody, own = torch.linspace(-1, 1, len(start)), torch.linspace(0, 0.5, len(start))
    expected, steps = plain_pytorch(linear, toy, 1, lambda theta: everybody - own, **SETTINGS)
    context = HopContext(
        start,
        start,
        {"control": everybody},
        {"control": own},
        {"control": own.clone()},
        {"control-change": torch.ones_like(own)},
    )
    out, left = run_hop(copy.deepcopy(linear), toy, SCAFFOLD, context=context, **SETTINGS)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
    control = own - everybody + (start - expected) / (steps * 0.1)
    torch.testing.assert_close(left.new_client_state["control"], control, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(left.payload["control-change"], 1 + control - own, rtol=1e-5, atol=1e-5)
