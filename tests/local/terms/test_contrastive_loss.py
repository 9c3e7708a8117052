"""MOON: exact numbers, a client's first hop, its state, and the projection head."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.local.terms.conftest import run_hop
from torch import nn

import fedrelay as fr
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import Batch, ModelOutputs
from fedrelay.local.terms.contrastive_loss import ContrastiveLoss, contrastive_losses
from fedrelay.local.terms.feature_fusion import FeatureFusion
from fedrelay.models.feature_recorder import FeatureRecorder, last_linear
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model

EAST, NORTH = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])


@pytest.mark.parametrize(("before", "expected"), [(NORTH, 0.126928), (EAST, 0.693147)])
def test_one_sample_by_hand(before, expected):
    assert contrastive_losses(EAST, EAST, before, 0.5).item() == pytest.approx(expected, abs=1e-6)


def test_a_vector_of_zeros_is_like_nothing():
    own = torch.zeros(2, 3, requires_grad=True)
    loss = contrastive_losses(own, torch.ones(2, 3), torch.zeros(2, 3), 0.5).mean()
    loss.backward()
    assert loss.item() == pytest.approx(0.693147, abs=1e-6)
    assert own.grad.isfinite().all()


@pytest.mark.parametrize(("anchor", "expected"), [("recv", 5 * 0.126928), ("round", 5 * 2.126928)])
def test_the_anchor_draws_and_the_previous_model_pushes(anchor, expected):
    received, round_model, previous = (torch.full((1,), float(value)) for value in (1, 2, 3))
    features = {1.0: EAST, 2.0: NORTH, 3.0: NORTH if anchor == "recv" else EAST}
    batch = Batch(torch.tensor([0]), ModelOutputs(EAST, EAST), lambda model: ModelOutputs(EAST, features[model.item()]))
    loss = ContrastiveLoss(anchor=anchor).loss(
        batch, HopContext(received, round_model, client_state={"previous": previous})
    )
    assert loss.item() == pytest.approx(expected, abs=1e-5)


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def test_the_first_hop_is_plain_and_the_client_keeps_the_whole_model(toy):
    module = network()
    plain, _ = run_hop(copy.deepcopy(module), toy, batch_size=4)
    out, left = run_hop(copy.deepcopy(module), toy, (ContrastiveLoss(),), batch_size=4)
    assert torch.equal(plain, out)
    assert torch.equal(left.new_client_state["previous"], out)  # statistics and counters too


def test_later_hops_move_away_from_the_previous_model(toy):
    module = network()
    received = FlatLayout.of(module).flatten(module)
    previous = received + 0.3
    state, kept, out = {"previous": previous}, {"previous": torch.zeros_like(received)}, {}
    for mu in (0.0, 5.0):
        out[mu], _ = run_hop(
            copy.deepcopy(module),
            toy,
            (ContrastiveLoss(mu=mu),),
            context=HopContext(received, received, {}, state, kept),
        )
    plain, _ = run_hop(copy.deepcopy(module), toy)
    assert torch.equal(out[0.0], plain)
    assert not torch.equal(out[5.0], plain)
    assert torch.equal(kept["previous"], out[5.0])


def shapes(module):
    return [tuple(parameter.shape) for parameter in module.parameters()]


@pytest.mark.parametrize("own", [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), nn.Linear(4, 3)])
def test_a_head_of_two_layers_comes_before_the_logits(own):
    before = shapes(own)
    headed = ContrastiveLoss(projection=5).adapt_model(own)
    width = before[-2][1]
    assert shapes(headed) == [*before[:-2], (width, width), (width,), (5, width), (5,), (3, 5), (3,)]
    assert shapes(own) == before  # the caller's module is not changed
    tap = FeatureRecorder(headed)
    assert headed(torch.ones(2, 4)).shape == (2, 3)
    assert tap.features.shape == (2, 5)


def test_no_head_on_demand():
    own = nn.Linear(4, 3)
    assert ContrastiveLoss(projection=0).adapt_model(own) is own
    assert last_linear(ContrastiveLoss().adapt_model(own)).in_features == 256


@pytest.mark.parametrize(
    "terms", [(FeatureFusion(), ContrastiveLoss(projection=7)), (ContrastiveLoss(projection=7), FeatureFusion())]
)
def test_a_head_goes_with_fusion_in_any_order(terms):
    torch.manual_seed(1)
    module = build_model("mlp", (4,), 3, hidden=(5,))
    for term in terms:
        module = term.adapt_model(module)
    assert module.fusion.mix.out_features == module.classifier.in_features == 5
    assert last_linear(module).in_features == 7
    assert module(torch.ones(2, 4)).shape == (2, 3)


def test_the_head_travels_and_is_counted(toy):
    settings = {"data": toy, "model": {"name": "mlp", "hidden": (5,)}, "rounds": 1, "fraction": 1.0, "workers": 1}
    plain, moon = fr.run("fedavg", **settings), fr.run("moon", **settings)
    gained = (5 * 5 + 5) + (256 * 5 + 256) + (3 * 256 + 3) - (3 * 5 + 3)
    assert moon.bytes - plain.bytes == 12 * 4 * gained
    assert moon.model["classifier.2.weight"].shape == (256, 5)
