"""SCAFFOLD, alone and with FedDyn, which is FedDC: exact numbers, what stays equal forever, and where they end up."""

from __future__ import annotations

import copy

import numpy as np
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


def control_context(received, everybody, own, change=None, payload=None, hops=0.0):
    """The context of a hop of SCAFFOLD: c, c_k, and what earlier hops since the merge left."""
    nothing = torch.zeros_like(own)
    change = nothing if change is None else change
    before = {"control": own, "control-change": change, "control-hops": own.new_full((1,), hops)}
    after = {name: torch.full_like(tensor, 9) for name, tensor in before.items()}
    sent = nothing.clone() if payload is None else payload.clone()
    return HopContext(received, received, {"control": everybody}, before, after, {"control-change": sent})


def hop_by_hand(context, commit="last"):
    """Two steps of length 0.1 on ½(x − 1)²."""
    terms = (ControlVariates(commit=commit),)
    problem = Problem([[1, 1]], terms, lr=0.1, epochs=2)
    return run_hop(
        problem.job.module, problem.job.federation, terms, hop=Hop(1, 0, 0, 0), received=context.received,
        context=context, lr=0.1, epochs=2, task=problem.job.task,
    )  # fmt: skip


def test_scaffold_on_one_client_by_hand():
    out, left = hop_by_hand(control_context(number(0.0), number(0.2), number(-0.1)))
    torch.testing.assert_close(out, number(0.133))
    torch.testing.assert_close(left.new_client_state["control"], number(-0.1))  # until the merge
    torch.testing.assert_close(left.new_client_state["control-change"], number(-0.865))
    torch.testing.assert_close(left.payload["control-change"], number(-0.865))


@pytest.mark.parametrize(("commit", "change", "hops"), [("last", -0.73865, 0), ("mean", -0.801825, 2)])
def test_a_second_hop_before_the_merge_by_hand(commit, change, hops):
    """The gradient still gains 0.2 + 0.1; the new change replaces the first one, −0.865, or is averaged with it."""
    first = control_context(number(0.133), number(0.2), number(-0.1), number(-0.865), number(-0.865), min(hops, 1))
    out, left = hop_by_hand(first, commit)
    torch.testing.assert_close(out, number(0.24073))
    torch.testing.assert_close(left.new_client_state["control"], number(-0.1))
    torch.testing.assert_close(left.new_client_state["control-change"], number(change))
    torch.testing.assert_close(left.new_client_state["control-hops"], number(hops))
    torch.testing.assert_close(left.payload["control-change"], number(change))  # what both hops add is the change


def test_scaffold_divides_by_the_steps_that_were_taken():
    """In round 3 a step is a quarter as long; the gradient that follows from it is the same."""
    zero = number(0.0)
    context = control_context(zero, zero, zero)
    problem = Problem([[1, 1]], SCAFFOLD, lr=0.4)
    out, left = run_hop(
        problem.job.module, problem.job.federation, SCAFFOLD, hop=Hop(3, 0, 0, 0), received=zero, context=context,
        lr=0.4, schedule={"name": "step", "factor": 0.5}, task=problem.job.task,
    )  # fmt: skip
    torch.testing.assert_close(out, number(0.1))
    torch.testing.assert_close(left.new_client_state["control-change"], number(-1.0))


REVISITS = {
    **ROUTES,
    "loops": [(0, 1, 0, 1), (2, 3, 3, 2)],
    "meeting": [(0, 1, 2), (0, 3, 2), (0, 2, 1)],
}
"""Routes on which clients are visited once, or several times, or by several routes in the same step."""


def in_numpy(rows, routes, rounds, *, lr, steps, commit, alpha=None):
    """SCAFFOLD, or FedDC with this α, in a few lines: no payloads, and c is the mean of all c_k by definition."""
    scales, places = rows[:, :1], rows[:, 1:]
    model = np.zeros(places.shape[1])
    own, drift = np.zeros_like(places), np.zeros_like(places)
    for _ in range(rounds):
        everybody, new, models = own.mean(0), {}, [model.copy() for _ in routes]
        for index in range(max(map(len, routes))):
            for place, route in enumerate(routes):
                if index >= len(route):
                    continue
                k, received = route[index], models[place]
                x = received.copy()
                for _ in range(steps):
                    gradient = scales[k] * (x - places[k]) + everybody - own[k]
                    x = x - lr * (gradient + (0 if alpha is None else alpha * (x - received + drift[k])))
                new.setdefault(k, []).append(own[k] - everybody + (received - x) / (steps * lr))
                drift[k] += x - received
                models[place] = x
        for k, found in new.items():
            own[k] = found[-1] if commit == "last" else np.mean(found, axis=0)
        model = np.mean(models, axis=0) + (0 if alpha is None else drift.mean(0))
    return model, own.mean(0)


@pytest.mark.parametrize("commit", ["last", "mean"])
@pytest.mark.parametrize("alpha", [None, 0.5], ids=["scaffold", "feddc"])
@pytest.mark.parametrize("kind", REVISITS)
def test_five_rounds_against_numpy(kind, alpha, commit):
    rows = four_rows().astype(np.float32).astype(np.float64)
    terms = (
        (ControlVariates(commit=commit),)
        if alpha is None
        else (DriftPenalty(alpha=alpha), ControlVariates(commit=commit))
    )
    problem = Problem(rows, terms, Mean(weights="uniform") if alpha is None else MeanPlusDrift(), lr=0.05, epochs=3)
    for _ in range(5):
        problem.travel(*REVISITS[kind])
    model, control = in_numpy(rows, REVISITS[kind], 5, lr=0.05, steps=3, commit=commit, alpha=alpha)
    torch.testing.assert_close(problem.weights, torch.from_numpy(model), rtol=0, atol=1e-12)
    torch.testing.assert_close(problem.server["control"], torch.from_numpy(control), rtol=0, atol=1e-12)


def test_if_every_client_is_visited_once_both_ways_to_commit_are_the_same():
    found = []
    for commit in ("last", "mean"):
        problem = Problem(four_rows(), (ControlVariates(commit=commit),), Mean(), lr=0.05, epochs=3)
        for _ in range(3):
            problem.travel(*ROUTES["chains"])
        found.append(problem.weights)
    assert torch.equal(*found)


def routes_of(kind, round):
    return some_rotations(round) if kind == "some" else REVISITS[kind]


@pytest.mark.parametrize("kind", [*REVISITS, "some"])
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
    context = control_context(start, everybody, own, payload=torch.ones_like(own))
    out, left = run_hop(copy.deepcopy(linear), toy, SCAFFOLD, context=context, **SETTINGS)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
    change = (start - expected) / (steps * 0.1) - everybody
    torch.testing.assert_close(left.new_client_state["control-change"], change, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(left.payload["control-change"], 1 + change, rtol=1e-5, atol=1e-5)
