"""FedMMD: the discrepancy against its definition, and that equal models feel nothing."""

from __future__ import annotations

import math

import pytest
import torch

from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import Batch, ModelOutputs
from fedrelay.local.terms.mmd_penalty import FIXED_WIDTHS, RELATIVE_WIDTHS, MmdPenalty, mmd_squared


def by_definition(ours, theirs, widths):
    def kernel(one, two):
        square = sum((a - b) ** 2 for a, b in zip(one, two, strict=True))
        return sum(math.exp(-square / (2 * width)) for width in widths)

    def mean(first, second):
        return sum(kernel(one, two) for one in first for two in second) / (len(first) * len(second))

    return mean(ours, ours) + mean(theirs, theirs) - 2 * mean(ours, theirs)


OURS, THEIRS = [[0.0, 0.0], [1.0, 0.5], [2.0, -1.0]], [[0.5, 0.0], [3.0, 1.0], [-1.0, 1.0]]


@pytest.mark.parametrize("widths", ["relative", "fixed"])
def test_the_definition(widths):
    rows = OURS + THEIRS
    squares = [(a - c) ** 2 + (b - d) ** 2 for a, b in rows for c, d in rows]
    scales = FIXED_WIDTHS if widths == "fixed" else [factor * sum(squares) / 30 for factor in RELATIVE_WIDTHS]
    found = mmd_squared(*(torch.tensor(values, dtype=torch.float64) for values in (OURS, THEIRS)), widths)
    assert found.item() == pytest.approx(by_definition(OURS, THEIRS, scales), rel=1e-9)


def test_there_are_nineteen_fixed_widths():
    assert (len(FIXED_WIDTHS), FIXED_WIDTHS[0], FIXED_WIDTHS[-1]) == (19, 1e-6, 1e6)


@pytest.mark.parametrize("widths", ["relative", "fixed"])
@pytest.mark.parametrize(
    "rows", [torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.ones(3, 2), torch.ones(1, 2)]
)
def test_equal_outputs_feel_nothing(widths, rows):
    ours = rows.clone().requires_grad_()
    loss = mmd_squared(ours, rows, widths)
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.tensor(0.0), rtol=0, atol=1e-6)
    torch.testing.assert_close(ours.grad, torch.zeros_like(ours), rtol=0, atol=1e-6)


def test_it_is_never_negative_and_pulls_closer():
    torch.manual_seed(1)
    ours, theirs = torch.randn(8, 3, requires_grad=True), torch.randn(8, 3) + 1
    before = mmd_squared(ours, theirs)
    before.backward()
    assert 0 < mmd_squared(ours.detach() - 0.1 * ours.grad, theirs) < before


@pytest.mark.parametrize(("anchor", "outputs", "model"), [("recv", "logits", 1.0), ("round", "features", 2.0)])
def test_options_say_what_is_compared_with_what(anchor, outputs, model):
    own = ModelOutputs(torch.tensor(OURS), torch.tensor(OURS) + 1)
    theirs = {
        1.0: ModelOutputs(torch.tensor(THEIRS), torch.tensor(OURS)),
        2.0: ModelOutputs(torch.tensor(OURS), torch.tensor(THEIRS)),
    }
    batch = Batch(torch.zeros(3, dtype=torch.int64), own, lambda judge: theirs[judge.item()])
    loss = MmdPenalty(strength=2.0, anchor=anchor, outputs=outputs).loss(
        batch, HopContext(torch.tensor([1.0]), torch.tensor([2.0]))
    )
    expected = 2 * mmd_squared(getattr(own, outputs), getattr(theirs[model], outputs))
    torch.testing.assert_close(loss, expected)
