"""Image arrays in the one layout that models see, and how their values are scaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset, Scaling
from fedrelay.data.loaders.files import damaged

_BLOCK = 4096
_COLOUR_CHANNELS = (1, 3, 4)


def image_dataset(
    name: str,
    train: tuple[NDArray[np.uint8], NDArray[np.int64]],
    test: tuple[NDArray[np.uint8], NDArray[np.int64]],
    classes: int,
    client_train: NDArray[np.int64] | None = None,
    scaling: Scaling | None = None,
) -> Dataset:
    """A data set of raw 8-bit images, standardised by the train images' own mean and deviation unless scaled."""
    return Dataset(name, "image", *train, *test, classes, scaling or standardisation(train[0]), client_train)


def standardisation(images: NDArray[np.uint8]) -> Scaling:
    """Raw values → mean 0 and deviation 1 in every channel; a constant channel becomes zeros.

    Dividing by 255 (or 16) first would cancel out. Counting how often each value occurs keeps the result
    exact, whatever the number of images.
    """
    values = np.arange(256)
    shift, scale = [], []
    for channel in range(images.shape[1]):
        weights = _value_counts(images[:, channel]) / images[:, channel].size
        mean = float(weights @ values)
        deviation = float(np.sqrt(weights @ (values - mean) ** 2))
        shift.append(mean)
        scale.append(1 / deviation if np.count_nonzero(weights) > 1 else 0.0)
    return Scaling(tuple(shift), tuple(scale))


def channels_first(path: Path, images: NDArray[Any]) -> NDArray[Any]:
    """`images` as `[n, channels, height, width]`.

    Three dimensions are grey images. In four, the channels come last if the last axis has the length
    1, 3 or 4 and the second has not.
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise damaged(path, f"its images have the shape {images.shape}; 3 or 4 dimensions are needed")
    if images.shape[3] in _COLOUR_CHANNELS and images.shape[1] not in _COLOUR_CHANNELS:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def _value_counts(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How often each of the 256 values occurs; by blocks, because `bincount` widens its input to 64 bits."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(values), _BLOCK):
        counts += np.bincount(values[start : start + _BLOCK].ravel(), minlength=256)
    return counts
