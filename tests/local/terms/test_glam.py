"""GLAM: exact numbers, teachers that agree with the student, and predictions at every position."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.local.terms.conftest import run_hop

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import Batch, ModelOutputs
from fedrelay.local.terms.glam import Glam, soft_cross_entropy, symmetric_kl
from fedrelay.models.flat_layout import FlatLayout

PREVIOUS, EVERYBODY = torch.tensor([1.0]), torch.tensor([2.0])
CONTEXT = HopContext(PREVIOUS, EVERYBODY)


def batch_of(student, previous, everybody, targets):
    teachers = {id(PREVIOUS): previous, id(EVERYBODY): everybody}
    return Batch(
        targets, ModelOutputs(student, student), lambda model: ModelOutputs(teachers[id(model)], teachers[id(model)])
    )


STUDENT, PREVIOUS_LOGITS, GLOBAL_LOGITS = (
    torch.tensor([row]) for row in ([2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 0.0])
)


@pytest.mark.parametrize(("tau", "rho", "expected"), [(1, 0, 1.360958), (0, 1, 1.394907), (0.3, 1, 1.803194)])
def test_one_sample_by_hand(tau, rho, expected):
    batch = batch_of(STUDENT, PREVIOUS_LOGITS, GLOBAL_LOGITS, torch.tensor([0]))
    loss = Glam(tau=tau, rho=rho).loss(batch, CONTEXT)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert F.cross_entropy(STUDENT, batch.targets).item() == pytest.approx(0.239545, abs=1e-6)


def test_positions_of_a_sequence_are_samples_and_padding_is_not():
    torch.manual_seed(0)
    student, previous, everybody = torch.randn(3, 2, 3, 4)
    targets = torch.tensor([[1, 2, IGNORED_LABEL], [0, IGNORED_LABEL, IGNORED_LABEL]])
    without_padding = targets != IGNORED_LABEL
    whole = Glam().loss(batch_of(student, previous, everybody, targets), CONTEXT)
    rows = Glam().loss(
        batch_of(
            student[without_padding], previous[without_padding], everybody[without_padding], targets[without_padding]
        ),
        CONTEXT,
    )
    assert torch.equal(whole, rows)


logits = st.lists(st.lists(st.floats(-8, 8), min_size=3, max_size=3), min_size=1, max_size=4)


@settings(max_examples=25)
@given(logits, st.floats(-5, 5))
def test_disagreement_is_symmetric_and_knows_no_offset(rows, offset):
    one = torch.tensor(rows, dtype=torch.float64)
    two = one.roll(1, dims=-1)
    first, second, shifted = (torch.log_softmax(values, -1) for values in (one, two, one + offset))
    assert (symmetric_kl(first, second) >= -1e-15).all()
    torch.testing.assert_close(symmetric_kl(first, second), symmetric_kl(second, first))
    torch.testing.assert_close(symmetric_kl(shifted, second), symmetric_kl(first, second))
    torch.testing.assert_close(soft_cross_entropy(shifted, second), soft_cross_entropy(first, second))


def test_a_student_that_agrees_with_both_teachers_feels_nothing():
    student = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    teacher = student.detach()
    Glam().loss(batch_of(student, teacher, teacher, torch.zeros(5, dtype=torch.int64)), CONTEXT).backward()
    torch.testing.assert_close(student.grad, torch.zeros_like(student), rtol=0, atol=1e-15)


def test_teachers_are_the_received_and_the_rounds_model(toy, linear):
    received = FlatLayout.of(linear).flatten(linear)
    x, y = toy.train_samples(1)
    out, _ = run_hop(
        linear, toy, (Glam(tau=0.5, rho=2.0),), received=received, round_model=-received, batch_size=100, lr=0.1
    )

    theta = received.clone().requires_grad_()
    student = torch.log_softmax(x @ theta[:12].view(3, 4).T + theta[12:], -1)
    teacher = torch.softmax(x @ -received[:12].view(3, 4).T - received[12:], -1)
    loss = F.nll_loss(student, y) - 2.0 * (teacher * student).sum(-1).mean()  # no symmetric_kl with itself yet
    loss.backward()
    torch.testing.assert_close(out, received - 0.1 * theta.grad)
