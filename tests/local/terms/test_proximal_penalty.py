from __future__ import annotations

import copy

import pytest
import torch
from tests.local.terms.conftest import Problem, number, plain_pytorch, run_hop

from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.models.flat_layout import FlatLayout


@pytest.mark.parametrize(("anchor", "second"), [("recv", 0.705775), ("round", 0.6886625)])
def test_a_client_alone_and_a_chain_by_hand(anchor, second):
    """Two steps of length 0.1 on ½(x − b)² + ¼(x − a)²: client 0 has b = 1, client 1 has b = 3."""
    problem = Problem([[1, 1], [1, 3]], (ProximalPenalty(mu=0.5, anchor=anchor),), lr=0.1, epochs=2)
    torch.testing.assert_close(problem.travel((0,), (0, 1)), [number(0.185), number(second)])


def test_fedprox_against_plain_pytorch(toy, linear):
    settings = {"lr": 0.1, "batch_size": 4, "epochs": 3}
    start = FlatLayout.of(linear).flatten(linear)
    expected, _ = plain_pytorch(linear, toy, 1, lambda theta: 0.7 * (theta - start), **settings)
    out, _ = run_hop(copy.deepcopy(linear), toy, (ProximalPenalty(mu=0.7),), **settings)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)
