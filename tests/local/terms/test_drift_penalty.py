"""FedDyn: exact numbers, alone and on a chain, and the penalty by size."""

from __future__ import annotations

import pytest
import torch
from tests.local.terms.conftest import Problem, four_rows, number, travel_to

from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.merge.drift import MeanPlusDrift

FEDDYN = (DriftPenalty(alpha=0.5),)


def test_feddyn_on_two_clients_by_hand():
    problem = Problem([[1, 1], [1, 3]], FEDDYN, MeanPlusDrift(), lr=0.1, epochs=2)
    torch.testing.assert_close(problem.travel((0,), (1,)), [number(0.185), number(0.555)])
    torch.testing.assert_close(problem.weights, number(0.74))
    torch.testing.assert_close(-0.5 * problem.memory["drift"], number(-0.185))
    torch.testing.assert_close(problem.travel((0,), (1,)), [number(0.7709875), number(1.1067625)])
    torch.testing.assert_close(problem.weights, number(1.50775))
    torch.testing.assert_close(-0.5 * problem.memory["drift"], number(-0.2844375))
    drifts = [-0.5 * problem.client_states.get(client)["drift"] for client in (0, 1)]
    torch.testing.assert_close(drifts, [number(-0.10799375), number(-0.46088125)])


def test_feddyn_on_a_chain_by_hand():
    problem = Problem([[1, 1], [1, 3]], FEDDYN, MeanPlusDrift(), lr=0.1, epochs=2)
    torch.testing.assert_close(problem.travel((0, 1)), [number(0.705775)])
    drifts = [-0.5 * problem.client_states.get(client)["drift"] for client in (0, 1)]
    torch.testing.assert_close(drifts, [number(-0.0925), number(-0.2603875)])
    torch.testing.assert_close(-0.5 * problem.memory["drift"], number(-0.17644375))
    torch.testing.assert_close(problem.weights, number(1.0586625))


@pytest.mark.parametrize("kind", ["singletons", "chains", "rotations"])
def test_a_penalty_by_size_finds_the_optimum_of_all_samples(kind):
    sizes = [1, 4, 2, 3]
    by_size, alike = (
        Problem(
            four_rows(), (DriftPenalty(alpha=1.0, alpha_by_size=flag),), MeanPlusDrift(), sizes=sizes, lr=0.1, epochs=2
        )
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
