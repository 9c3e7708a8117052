"""GAN recovery on made-up models: what it learns, what it leaves alone, and how images are compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from fedrelay.data.registry import load_dataset
from fedrelay.data.samples import Samples
from fedrelay.errors import DataError, SpecError
from fedrelay.models.flat_layout import TORCH_GLOBALS, FlatLayout
from fedrelay.robustness.gan_attacker import (
    GanAttacker,
    ImageGenerator,
    ReceivedModel,
    feature_network,
    frechet_distance,
    hops_at,
    save_image_grid,
)


def flat(images):
    return images.flatten(1)


@pytest.fixture(scope="module")
def digits():
    data = load_dataset("digits")
    images = torch.from_numpy(data.x_train.astype(np.float32)) / 8 - 1
    return Samples(images.reshape(len(images), 1, 8, 8), torch.from_numpy(data.y_train))


@pytest.fixture
def module():
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def sequence(module, length):
    """Models as an attacker might receive them, one after another."""
    layout = FlatLayout.of(module)
    return [
        ReceivedModel(round, 3, layout.flatten(module) + 0.05 * torch.from_numpy(np.random.default_rng(round).normal(
            size=layout.size)).float()) for round in range(1, length + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 32), (1, 27), (3, 12)])
def test_the_painter_draws_images_like_the_attackers(channels, side):
    images = torch.stack([torch.full((channels, side, side), value) for value in (-2.0, 5.0)])
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        painter = ImageGenerator.of(images).eval()
        drawn = painter(100 * torch.randn(3, 100))
    assert drawn.shape == (3, channels, side, side)
    assert drawn.min() >= -2
    assert drawn.max() <= 5
    with pytest.raises(SpecError, match=r"needs square images, but samples have shape \(4,\)"):
        ImageGenerator.of(torch.zeros(2, 4))


def test_it_only_looks_and_repeats_itself(module, digits):
    own = Samples(digits.x[:100], digits.y[:100])
    seen = sequence(module, 2)
    copies = [each.weights.clone() for each in seen]
    before = torch.random.get_rng_state()
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    attacks = [GanAttacker(module, own, epochs=2, seed=5) for _ in range(2)]
    pictures = []
    for attack in attacks:
        drawn = [attack.generate(20)]
        for received_model in seen:
            attack.train_on(received_model)
            drawn.append(attack.generate(20))
        pictures.append(drawn)
    assert all(torch.equal(one, other) for one, other in zip(*pictures, strict=True))
    assert not torch.equal(pictures[0][0], pictures[0][1])  # the painter learns
    assert not torch.equal(pictures[0][1], pictures[0][2])  # and goes on from where it was
    assert all(torch.equal(each.weights, copied) for each, copied in zip(seen, copies, strict=True))
    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in start.items())
    assert torch.equal(torch.random.get_rng_state(), before)
    another = GanAttacker(module, own, epochs=2, seed=6)
    assert not torch.equal(another.generate(20), pictures[0][0])


@pytest.mark.slow
def test_it_comes_closer_to_what_it_looks_at(module, digits):
    own = Samples(digits.x[:256], digits.y[:256])
    attack = GanAttacker(module, own, epochs=25)
    features = feature_network(digits, 10, steps=60)
    untrained = frechet_distance(features, attack.generate(500), digits.x)
    for received_model in sequence(module, 2):
        attack.train_on(received_model)
    assert frechet_distance(features, attack.generate(500), digits.x) < 0.7 * untrained


def test_the_distance_by_hand():
    """Gaussian features: ‖μ‖² + Σ (σ₁ − σ₂)²."""
    rng = np.random.default_rng(0)
    one, other = (torch.from_numpy(rng.normal(size=(4000, 3))) for _ in range(2))
    one, other = ((each - each.mean(0)) / each.std(0) for each in (one, other))
    shifted = other * torch.tensor([2.0, 1.0, 3.0]) + torch.tensor([1.0, 0.0, -2.0])
    found = frechet_distance(lambda rows: rows, one, shifted)
    assert found == pytest.approx(5 + 1 + 4, rel=0.02)  # correlations of the sample are not exactly zero


@given(st.integers(0, 1000))
def test_alike_and_in_any_order(seed):
    rng = np.random.default_rng(seed)
    images = torch.from_numpy(rng.normal(size=(60, 1, 2, 2)))
    others = torch.from_numpy(rng.normal(size=(70, 1, 2, 2)) + 1)
    assert frechet_distance(flat, images, images) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(flat, images, images[torch.randperm(60)]) == pytest.approx(0, abs=1e-6)
    there, back = frechet_distance(flat, images, others), frechet_distance(flat, others, images)
    assert there == pytest.approx(back)
    assert frechet_distance(flat, images.flip(0), others) == pytest.approx(there)
    with pytest.raises(DataError, match="needs more images than features, got 4 images and 4 features"):
        frechet_distance(flat, images[:4], others)


@pytest.mark.filterwarnings("ignore")
def test_another_librarys_distance(digits):
    fid = pytest.importorskip("torchmetrics.image.fid")

    class Pixels(nn.Module):
        num_features = 16

        def forward(self, images):
            return images[:, 0, 2:6, 2:6].flatten(1).double()

    theirs = fid.FrechetInceptionDistance(feature=Pixels(), normalize=True, input_img_size=(1, 8, 8))
    theirs.update(digits.x[:400] / 2 + 0.5, real=True)
    theirs.update(digits.x[400:900].roll(1, 2) / 2 + 0.5, real=False)
    pixels, moved = Pixels(), digits.x[400:900].roll(1, 2)
    ours = frechet_distance(lambda images: pixels(images / 2 + 0.5), digits.x[:400], moved)
    assert ours == pytest.approx(float(theirs.compute()), rel=1e-3)


def test_a_contact_sheet(tmp_path):
    """Each pixel of 4 × 4 becomes 8 × 8; white between, and where nothing is left."""
    images = torch.zeros(5, 1, 4, 4)
    images[1, 0, 0, 0] = 1
    save_image_grid(images, tmp_path / "sheet.png", columns=3)
    pixels = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert pixels.shape == (32 + 2 + 32, 32 + 2 + 32 + 2 + 32)
    expected = np.full_like(pixels, 255)
    for row, column in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        expected[34 * row :, 34 * column :][:32, :32] = 0
    expected[:8, 34:42] = 255
    assert np.array_equal(pixels, expected)
    save_image_grid(torch.rand(2, 3, 32, 32), tmp_path / "colour.png", columns=2)
    assert np.asarray(Image.open(tmp_path / "colour.png")).shape == (32, 66, 3)


def test_where_a_client_receives_models():
    assert hops_at(3, [(1, 3, 2), (3, 4), (5, 6, 3), (3,), (2,), (3, 1, 3)]) == (
        (0, 1), (1, 0), (2, 2), (3, 0), (5, 0), (5, 2),
    )  # fmt: skip
