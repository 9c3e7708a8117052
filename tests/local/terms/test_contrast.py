"""MOON: exact numbers, a client's first turn, and what it keeps."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.local.terms.conftest import turn
from torch import nn

from fedrelay.local.terms.base import Batch, Outputs
from fedrelay.local.terms.contrast import Contrast, contrast
from fedrelay.local.visit import Visit
from fedrelay.models.layout import Layout

EAST, NORTH = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])


@pytest.mark.parametrize(("before", "expected"), [(NORTH, 0.126928), (EAST, 0.693147)])
def test_one_sample_by_hand(before, expected):
    assert contrast(EAST, EAST, before, 0.5).item() == pytest.approx(expected, abs=1e-6)


def test_a_vector_of_zeros_is_like_nothing():
    own = torch.zeros(2, 3, requires_grad=True)
    loss = contrast(own, torch.ones(2, 3), torch.zeros(2, 3), 0.5)
    loss.backward()
    assert loss.item() == pytest.approx(0.693147, abs=1e-6)
    assert own.grad.isfinite().all()


@pytest.mark.parametrize(("anchor", "expected"), [("recv", 5 * 0.126928), ("round", 5 * 2.126928)])
def test_the_anchor_draws_and_the_previous_model_pushes(anchor, expected):
    recv, broadcast, previous = (torch.full((1,), float(value)) for value in (1, 2, 3))
    features = {1.0: EAST, 2.0: NORTH, 3.0: NORTH if anchor == "recv" else EAST}
    batch = Batch(torch.tensor([0]), Outputs(EAST, EAST), lambda model: Outputs(EAST, features[model.item()]))
    loss = Contrast(anchor=anchor).loss(batch, Visit(recv, broadcast, state={"previous": previous}))
    assert loss.item() == pytest.approx(expected, abs=1e-5)


def network():
    torch.manual_seed(2)
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def test_the_first_turn_is_plain_and_the_whole_model_is_kept(toy):
    module = network()
    plain, _ = turn(copy.deepcopy(module), toy, batch_size=4)
    out, left = turn(copy.deepcopy(module), toy, (Contrast(),), batch_size=4)
    assert torch.equal(plain, out)
    assert torch.equal(left.kept["previous"], out)  # statistics and counters too


def test_later_turns_move_away_from_the_previous_model(toy):
    module = network()
    recv = Layout.of(module).flatten(module)
    previous = recv + 0.3
    state, kept, out = {"previous": previous}, {"previous": torch.zeros_like(recv)}, {}
    for mu in (0.0, 5.0):
        out[mu], _ = turn(copy.deepcopy(module), toy, (Contrast(mu=mu),), visit=Visit(recv, recv, {}, state, kept))
    plain, _ = turn(copy.deepcopy(module), toy)
    assert torch.equal(out[0.0], plain)
    assert not torch.equal(out[5.0], plain)
    assert torch.equal(kept["previous"], out[5.0])
