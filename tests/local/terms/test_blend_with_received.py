"""WFSL's regulator: the fold by hand, and what α = 0, α = 1 and the first hop mean."""

from __future__ import annotations

import pytest
import torch
from tests.local.terms.conftest import Problem, four_rows

from fedrelay.engines.base import RoundInputs
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

RING = (0, 1, 2, 3)


def test_the_fold_by_hand():
    payload, folds = {"fold": torch.zeros(1), "sum": torch.zeros(1)}, []
    for model in (1.0, 2.0, 4.0):
        context = HopContext(torch.zeros(1), torch.zeros(1), payload=payload)
        handed_on = torch.tensor([model])
        BlendWithReceived(alpha=0.25).write_state_and_payload(
            context, TrainedHop(handed_on, handed_on, 1, 0.1, handed_on, context)
        )
        folds.append(payload["fold"].item())
    assert folds == [1.0, 1.75, 3.4375]
    assert payload["sum"].item() == 7.0


def test_models_side_by_side_open_each_for_itself():
    theta, received = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.zeros(2, 2)
    BlendWithReceived(alpha=0.25).adjust_trained_model(
        theta, HopContext(received, received, payload={"sum": torch.tensor([[0.0, 0.0], [1.0, 0.0]])})
    )
    assert theta.tolist() == [[1.0, 2.0], [0.75, 1.5]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_alpha_has_the_precision_of_the_model(dtype):
    theta, received = torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype)
    BlendWithReceived(alpha=0.1).adjust_trained_model(
        theta, HopContext(received, received, payload={"sum": torch.ones(1, dtype=dtype)})
    )
    assert torch.equal(theta, torch.tensor([0.1], dtype=dtype))


def test_a_chain_is_damped_from_its_second_hop_on():
    """Client k, alone and with one step of length η, goes the share η·a_k of the way to b_k."""
    rows = four_rows()
    (home,) = Problem(rows, (BlendWithReceived(alpha=0.25),), lr=0.1).travel(RING)
    expected = torch.zeros(3, dtype=torch.float64)
    for place, (scale, *goal) in enumerate(torch.from_numpy(rows).float().double().tolist()):
        step = 0.1 * scale * (torch.tensor(goal, dtype=torch.float64) - expected)
        expected += step if place == 0 else 0.75 * step
    torch.testing.assert_close(home, expected)


def test_with_all_of_the_received_model_nothing_changes_after_the_first_client():
    whole, first = (Problem(four_rows(), (BlendWithReceived(alpha=1.0),), lr=0.1) for _ in range(2))
    assert torch.equal(whole.travel(RING)[0], first.travel(RING[:1])[0])


@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_the_models_of_a_route_come_home_folded_and_summed(alpha):
    handed_on = [
        Problem(four_rows(), (BlendWithReceived(alpha=alpha),), lr=0.1).travel(RING[:turns])[0]
        for turns in (1, 2, 3, 4)
    ]
    fold = handed_on[0]
    for model in handed_on[1:]:
        fold = (1 - alpha) * model + alpha * fold
    problem = Problem(four_rows(), (BlendWithReceived(alpha=alpha),), lr=0.1)
    (arrival,) = problem.engine.run_round(RoundPlan(1, (Route(RING),)), AS_PLANNED, RoundInputs(problem.weights))
    torch.testing.assert_close(arrival.payload["fold"], fold)
    torch.testing.assert_close(arrival.payload["sum"], torch.stack(handed_on).sum(0))


def test_a_plain_chain_is_folded_all_the_same():
    plain, trained = (
        Problem(four_rows(), terms, lr=0.1) for terms in ((BlendWithReceived(alpha=0.25, plain=True),), ())
    )
    assert torch.equal(plain.travel(RING)[0], trained.travel(RING)[0])
    models = [Problem(four_rows(), (), lr=0.1).travel(RING[:turns])[0] for turns in (1, 2)]
    (arrival,) = plain.engine.run_round(RoundPlan(1, (Route(RING[:2]),)), AS_PLANNED, RoundInputs(plain.weights))
    torch.testing.assert_close(arrival.payload["fold"], 0.75 * models[1] + 0.25 * models[0])
