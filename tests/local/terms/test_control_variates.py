"""SCAFFOLD and FedDyn and FedDC, which is both: exact numbers, what stays equal forever, and where they end up."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.local.terms.conftest import ROUTES, Problem, four_rows, run_hop, some_rotations

from fedrelay.engines.local.executor import ForkedExecutor
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.merge.drift import DriftMean
from fedrelay.merge.last import Last
from fedrelay.merge.mean import Mean
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.rng import generator
from fedrelay.routes.plan import Hop

SCAFFOLD, FEDDYN, FEDDC = (ControlVariates(),), (DriftPenalty(alpha=0.5),), (DriftPenalty(alpha=0.5), ControlVariates())


def number(*values):
    return torch.tensor(values, dtype=torch.float64)


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
        lr=0.1, epochs=2, loss=problem.job.loss,
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
        lr=0.4, schedule={"name": "step", "factor": 0.5}, loss=problem.job.loss,
    )  # fmt: skip
    torch.testing.assert_close(out, number(0.1))
    torch.testing.assert_close(left.new_client_state["control"], number(-1.0))


def test_feddyn_on_two_clients_by_hand():
    problem = Problem([[1, 1], [1, 3]], FEDDYN, DriftMean(), lr=0.1, epochs=2)
    torch.testing.assert_close(problem.travel((0,), (1,)), [number(0.185), number(0.555)])
    torch.testing.assert_close(problem.weights, number(0.74))
    torch.testing.assert_close(-0.5 * problem.memory["drift"], number(-0.185))
    torch.testing.assert_close(problem.travel((0,), (1,)), [number(0.7709875), number(1.1067625)])
    torch.testing.assert_close(problem.weights, number(1.50775))
    torch.testing.assert_close(-0.5 * problem.memory["drift"], number(-0.2844375))
    drifts = [-0.5 * problem.client_states.get(client)["drift"] for client in (0, 1)]
    torch.testing.assert_close(drifts, [number(-0.10799375), number(-0.46088125)])


def test_feddyn_on_a_chain_by_hand():
    problem = Problem([[1, 1], [1, 3]], FEDDYN, DriftMean(), lr=0.1, epochs=2)
    torch.testing.assert_close(problem.travel((0, 1)), [number(0.705775)])
    drifts = [-0.5 * problem.client_states.get(client)["drift"] for client in (0, 1)]
    torch.testing.assert_close(drifts, [number(-0.0925), number(-0.2603875)])
    torch.testing.assert_close(-0.5 * problem.memory["drift"], number(-0.17644375))
    torch.testing.assert_close(problem.weights, number(1.0586625))


def routes_of(kind, round):
    return some_rotations(round) if kind == "some" else ROUTES[kind]


@pytest.mark.parametrize("kind", [*ROUTES, "some"])
@pytest.mark.parametrize("terms", [SCAFFOLD, FEDDYN, FEDDC], ids=["scaffold", "feddyn", "feddc"])
def test_the_server_knows_the_mean_of_what_clients_keep(kind, terms):
    problem = Problem(
        four_rows(), terms, DriftMean() if DriftPenalty in map(type, terms) else Mean(), lr=0.05, epochs=3
    )
    for round in range(1, 6):
        problem.travel(*routes_of(kind, round))
        if "control" in problem.server:
            torch.testing.assert_close(problem.server["control"], problem.mean_state("control"), rtol=0, atol=1e-12)
        if "drift" in problem.memory:
            torch.testing.assert_close(problem.memory["drift"], problem.mean_state("drift"), rtol=0, atol=1e-12)


def travel_to(goal, problem, kind, rounds):
    """So many rounds, or fewer where the goal is reached before."""
    for _ in range(rounds):
        problem.travel(*ROUTES[kind])
        if (problem.weights - goal).norm() < 1e-6:
            break


@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize(
    ("terms", "merge"),
    [
        (SCAFFOLD, Mean()),
        ((DriftPenalty(alpha=1.0),), DriftMean()),
        ((DriftPenalty(alpha=1.0), ControlVariates()), DriftMean()),
    ],
    ids=["scaffold", "feddyn", "feddc"],
)
def test_corrected_clients_find_the_common_optimum(kind, terms, merge):
    problem = Problem(four_rows(), terms, merge, lr=0.2, epochs=2)
    travel_to(problem.optimum, problem, kind, rounds=60)
    assert (problem.weights - problem.optimum).norm() < 1e-6


@pytest.mark.parametrize("kind", ["singletons", "chains", "rotations"])
def test_a_penalty_by_size_finds_the_optimum_of_all_samples(kind):
    sizes = [1, 4, 2, 3]
    by_size, alike = (
        Problem(four_rows(), (DriftPenalty(alpha=1.0, alpha_by_size=flag),), DriftMean(), sizes=sizes, lr=0.1, epochs=2)
        for flag in (True, False)
    )
    everybody_counts_the_same = Problem(four_rows()).optimum
    travel_to(by_size.optimum, by_size, kind, rounds=200)
    travel_to(everybody_counts_the_same, alike, kind, rounds=200)
    assert (by_size.weights - by_size.optimum).norm() < 1e-6
    assert (alike.weights - everybody_counts_the_same).norm() < 1e-6
    assert (by_size.optimum - alike.weights).norm() > 0.1


def test_a_penalty_by_size_by_hand():
    """Two clients with one and three samples: α/½ and α/1½ beside plain gradients of ½(x − b)²."""
    problem = Problem([[1, 1], [1, 3]], (DriftPenalty(alpha=0.5, alpha_by_size=True),), sizes=[1, 3], lr=0.1, epochs=2)
    one = 0.1 - 0.1 * ((0.1 - 1) + 0.5 / 0.5 * 0.1)
    two = 0.3 - 0.1 * ((0.3 - 3) + 0.5 / 1.5 * 0.3)
    torch.testing.assert_close(problem.travel((0,), (1,)), [number(one), number(two)])
    both = Problem([[1, 1], [1, 3]], (DriftPenalty(alpha=0.5, alpha_by_size=True),), sizes=[2, 2], lr=0.1, epochs=2)
    plain = Problem([[1, 1], [1, 3]], (DriftPenalty(alpha=0.5),), sizes=[2, 2], lr=0.1, epochs=2)
    routes = ((0,), (1,))
    torch.testing.assert_close(both.travel(*routes), plain.travel(*routes), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ROUTES)
def test_plain_clients_do_not(kind):
    problem = Problem(four_rows(), (), Last() if kind == "ring" else Mean(), lr=0.2, epochs=2)
    for _ in range(20):
        problem.travel(*ROUTES[kind])
    assert 1e-3 < (problem.weights - problem.optimum).norm() < 10


def test_feddc_without_control_is_feddyn_and_starts_as_fedprox():
    dyn = Problem(four_rows(), FEDDYN, DriftMean(), lr=0.05, epochs=3)
    prox = Problem(four_rows(), (ProximalPenalty(mu=0.5),), Mean(), lr=0.05, epochs=3)
    dc = Problem(four_rows(), FEDDC, DriftMean(), lr=0.05, epochs=3)
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
        problem = Problem(four_rows(), FEDDC, DriftMean(), lr=0.05, epochs=3, **executor)
        for round in range(1, 4):
            problem.travel(*some_rotations(round))
        found.append((problem.weights, problem.server["control"], problem.mean_state("drift")))
        problem.engine.close()
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def plain_pytorch(module, federation, client, extra, *, lr, batch_size, epochs):
    """A hop in plain PyTorch, with only the order of the samples from FedRelay; `extra` is added to the gradient."""
    module = copy.deepcopy(module)
    x, y = federation.client_samples(client)
    rng, steps = generator(7, "batches", 1, 0, 0, client), 0
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for batch in order.split(batch_size):
            module.zero_grad()
            F.cross_entropy(module(x[batch]), y[batch]).backward()
            with torch.no_grad():
                theta = torch.nn.utils.parameters_to_vector(module.parameters())
                slope = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
                torch.nn.utils.vector_to_parameters(theta - lr * (slope + extra(theta)), module.parameters())
            steps += 1
    return FlatLayout.of(module).flatten(module), steps


SETTINGS = {"lr": 0.1, "batch_size": 4, "epochs": 3}


def test_fedprox_against_plain_pytorch(toy, linear):
    start = FlatLayout.of(linear).flatten(linear)
    expected, _ = plain_pytorch(linear, toy, 1, lambda theta: 0.7 * (theta - start), **SETTINGS)
    out, _ = run_hop(copy.deepcopy(linear), toy, (ProximalPenalty(mu=0.7),), **SETTINGS)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


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
