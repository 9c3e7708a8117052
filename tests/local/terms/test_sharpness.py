from __future__ import annotations

import pytest
import torch
from tests.local.terms.conftest import Problem, number

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.sharpness import Sharpness

STEEP = [[2, 1]]
"""One client with the loss (x − 1)², whose gradient is 2(x − 1)."""


def test_two_steps_by_hand_with_the_gradient_of_the_same_batch():
    """Uphill of x is away from 1: the gradient at x − ½ is 2(x − 1½)."""
    problem = Problem(STEEP, (Sharpness(rho=0.5),), lr=0.1, epochs=2)
    first = 0 - 0.1 * 2 * (0 - 1.5)
    torch.testing.assert_close(problem.travel((0,)), [number(first - 0.1 * 2 * (first - 1.5))])


def test_two_steps_by_hand_with_the_last_gradient():
    """The first step is a plain one; the second takes the gradient at x − ½."""
    problem = Problem(STEEP, (Sharpness(rho=0.5, uphill="last"),), lr=0.1, epochs=2)
    first = 0 - 0.1 * 2 * (0 - 1)
    torch.testing.assert_close(problem.travel((0,)), [number(first - 0.1 * 2 * (first - 1.5))])


def test_every_hop_begins_without_a_last_gradient():
    problem = Problem([[2, 1], [2, 1]], (Sharpness(rho=0.5, uphill="last"),), lr=0.1)
    torch.testing.assert_close(problem.travel((0, 1)), [number(0.2 - 0.1 * 2 * (0.2 - 1))])


def test_where_there_is_no_slope_nothing_moves():
    torch.testing.assert_close(Problem([[0, 0]], (Sharpness(),), lr=0.1).travel((0,)), [number(0.0)])


def test_other_terms_add_their_gradients_at_the_model_itself():
    problem = Problem(STEEP, (Sharpness(rho=0.5), ProximalPenalty(mu=1.0)), lr=0.1, epochs=2)
    first = 0.3
    torch.testing.assert_close(problem.travel((0,)), [number(first - 0.1 * (2 * (first - 1.5) + first))])


@pytest.mark.parametrize(("uphill", "factor"), [("batch", 2), ("last", 1)])
def test_virtual_time_counts_all_gradients(toy, uphill, factor):
    def seconds_of_hop(method, **options):
        run = prepare(experiment(method, **options), federation=toy)
        return run.costs.time_model(run.planner.plan(1)).hop_time(0)

    assert seconds_of_hop("fedsam", terms={"sharpness": {"uphill": uphill}}) == factor * seconds_of_hop("fedavg")


def test_without_a_distance_it_is_its_route(toy):
    settings = {"data": toy, "rounds": 2, "workers": 1, "lanes": 1}
    for uphill in ("batch", "last"):
        flat = fr.run("fedsam", terms={"sharpness": {"rho": 0, "uphill": uphill}}, **settings)
        assert flat.weights_sha256 == fr.run("fedavg", **settings).weights_sha256
