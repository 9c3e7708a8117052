from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay.data.domain_shift import SHIFTS, apply_shift, check_shifts
from fedrelay.errors import SpecError


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def ramp(height: int = 3, width: int = 3) -> torch.Tensor:
    return torch.arange(height * width, dtype=torch.float32).view(1, 1, height, width)


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("images", [0, 3])
def test_every_shift_keeps_shape_type_and_its_argument(name: str, images: int) -> None:
    x = torch.from_numpy(rng().random((images, 2, 6, 5), dtype=np.float32))
    before = x.clone()
    shifted = apply_shift(name, x, rng())
    assert shifted.shape == x.shape
    assert shifted.dtype == torch.float32
    assert torch.equal(x, before)
    assert torch.equal(shifted, apply_shift(name, x, rng()))
    assert images == 0 or torch.equal(shifted, x) == (name == "none")


def test_quarter_turns_are_exact() -> None:
    assert apply_shift("rotation", ramp(), rng(), strength=90)[0, 0].tolist() == [
        [2, 5, 8],
        [1, 4, 7],
        [0, 3, 6],
    ]
    assert apply_shift("rotation", ramp(), rng(), strength=180)[0, 0].tolist() == [
        [8, 7, 6],
        [5, 4, 3],
        [2, 1, 0],
    ]
    assert torch.equal(apply_shift("rotation", ramp(), rng(), strength=360), ramp())


def test_other_turns_go_the_same_way() -> None:
    almost = apply_shift("rotation", ramp(), rng(), strength=89.9999)
    torch.testing.assert_close(almost, apply_shift("rotation", ramp(), rng(), strength=90), atol=1e-3, rtol=0)
    half = apply_shift("rotation", ramp(3, 4), rng(), strength=180)
    torch.testing.assert_close(half, ramp(3, 4).flip(-1, -2))


def test_rotation_repeats_the_border_and_keeps_the_centre() -> None:
    white = torch.full((1, 1, 5, 5), 255.0)
    torch.testing.assert_close(apply_shift("rotation", white, rng()), white)
    dot = torch.zeros(1, 1, 5, 5)
    dot[0, 0, 2, 2] = 1
    assert apply_shift("rotation", dot, rng())[0, 0, 2, 2] == pytest.approx(1, abs=1e-5)


def test_inversion_mirrors_the_values() -> None:
    assert apply_shift("inversion", ramp(), rng(), values=(0, 16)).flatten().tolist() == [16.0 - i for i in range(9)]
    assert apply_shift("inversion", ramp(), rng(), values=(0, 16), strength=0.5).unique().tolist() == [8]


def test_noise_has_the_strength_asked_for_and_stays_within_the_values() -> None:
    grey = torch.full((50, 1, 20, 20), 100.0)
    noisy = apply_shift("noise", grey, rng(), values=(0, 200), strength=0.1)
    assert float((noisy - grey).std()) == pytest.approx(20, rel=0.02)
    assert not torch.equal(noisy, apply_shift("noise", grey, rng(2), values=(0, 200), strength=0.1))
    harsh = apply_shift("noise", grey, rng(), values=(0, 200), strength=5)
    assert (float(harsh.min()), float(harsh.max())) == (0, 200)


def test_contrast_shrinks_towards_the_mean_of_each_image() -> None:
    images = torch.cat([ramp(), ramp() + 10])
    flat = apply_shift("contrast", images, rng(), strength=0.5)
    assert flat[0].flatten().tolist() == [4 + 0.5 * (i - 4) for i in range(9)]
    torch.testing.assert_close(flat[1], flat[0] + 10)


def test_what_cannot_be_shifted() -> None:
    with pytest.raises(SpecError, match=r"unknown shift 'rotated' .*'rotation'\?.* allowed: none, rotation, "):
        apply_shift("rotated", ramp(), rng())
    with pytest.raises(SpecError, match=r"needs images \[n, channels, height, width\], got shape \[4, 4\]"):
        apply_shift("noise", torch.zeros(4, 4), rng())
    with pytest.raises(SpecError, match="these samples are tabular, for which only 'none' is allowed"):
        check_shifts(["none", "noise"], "tabular")
    check_shifts(["none"], "tokens")
