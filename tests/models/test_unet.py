from __future__ import annotations

import pytest
import torch
from torch import nn

from fedrelay.errors import SpecError
from fedrelay.models.zoo import build_model


def test_outputs_have_the_size_of_the_image_and_all_weights_are_trained():
    torch.manual_seed(0)
    model = build_model("unet", (2, 8, 12), 3, kind="image")
    logits = model(torch.randn(5, 2, 8, 12))
    assert logits.shape == (5, 3, 8, 12)
    nn.functional.cross_entropy(logits, torch.arange(5 * 8 * 12).view(5, 8, 12) % 3).backward()
    assert all(each.grad is not None and each.grad.abs().max() > 0 for each in model.parameters())
    assert not list(model.buffers())


def test_shortcuts_carry_single_pixels_past_the_lowest_level():
    """Without the lowest level, a pixel still changes its own outputs and those near it, and no others."""
    torch.manual_seed(0)
    model = build_model("unet", (1, 32, 32), 2)
    body = model.features
    with torch.no_grad():
        for up in body.up:
            up.weight.zero_()
        for layer in [each for each in body.modules() if isinstance(each, nn.GroupNorm)]:
            layer.forward = lambda x: x  # it mixes all pixels of an image
        image = torch.zeros(1, 1, 32, 32)
        changed = image.clone()
        changed[0, 0, 16, 16] = 5.0
        rows = (model(changed) != model(image)).any(1)[0].any(1).nonzero().flatten().tolist()
    assert 16 in rows
    assert (min(rows), max(rows)) == (12, 20)  # two double convolutions of 3×3: four pixels to each side


@pytest.mark.parametrize("shape", [(1, 10, 16), (1, 16, 18)])
def test_other_sides_than_multiples_of_four_are_refused(shape):
    with pytest.raises(
        SpecError, match=r"model 'unet': needs images whose height and width are multiples of 4, got 1\d×1"
    ):
        build_model("unet", shape, 3)
