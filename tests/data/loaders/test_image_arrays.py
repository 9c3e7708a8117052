from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedrelay.data.loaders.image_arrays import channels_first, standardisation
from fedrelay.errors import DataError

HERE = Path("images")


def test_standardisation_in_exact_numbers() -> None:
    images = np.array([[[[0, 2]], [[7, 7]]], [[[4, 2]], [[7, 7]]]], np.uint8)
    scaling = standardisation(images)
    assert scaling.shift == (2.0, 7.0)
    assert scaling.scale == (pytest.approx(1 / np.sqrt(2)), 0.0)


@settings(deadline=None, max_examples=40)
@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 3), st.just(2), st.just(3))))
def test_train_images_become_mean_0_and_deviation_1(images: np.ndarray) -> None:
    scaling = standardisation(images)
    channels = images.astype(np.float64).transpose(1, 0, 2, 3).reshape(images.shape[1], -1)
    for values, shift, scale in zip(channels, scaling.shift, scaling.scale, strict=True):
        scaled = (values - shift) * scale
        assert scaled.mean() == pytest.approx(0, abs=1e-9)
        assert scaled.std() == pytest.approx(float(np.ptp(values) > 0))


def test_more_images_than_one_block() -> None:
    images = np.zeros((5000, 1, 1, 1), np.uint8)
    images[:2500] = 2
    assert standardisation(images).shift == (1.0,)
    assert standardisation(images).scale == (1.0,)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 8, 9), (5, 1, 8, 9)),
        ((5, 8, 9, 3), (5, 3, 8, 9)),
        ((5, 8, 9, 1), (5, 1, 8, 9)),
        ((5, 3, 8, 9), (5, 3, 8, 9)),
        ((5, 1, 28, 3), (5, 1, 28, 3)),
        ((5, 12, 8, 8), (5, 12, 8, 8)),
    ],
)
def test_channels_come_first(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert channels_first(HERE, np.zeros(shape)).shape == expected


def test_pixels_keep_their_place() -> None:
    image = np.arange(2 * 5 * 3).reshape(1, 2, 5, 3)
    assert channels_first(HERE, image)[0, 2, 1, 4] == image[0, 1, 4, 2]


def test_other_shapes_are_refused() -> None:
    with pytest.raises(DataError, match=r"images: its images have shape \(2, 2\)"):
        channels_first(HERE, np.zeros((2, 2)))
