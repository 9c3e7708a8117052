"""Image arrays in the layout that models expect, and the scaling of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset, Scaling
from fedrelay.data.loaders.file_checks import damaged

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
    """A data set of raw 8-bit images; the default scaling is `standardisation` of the train images."""
    return Dataset(name, "image", *train, *test, classes, scaling or standardisation(train[0]), client_train)


def standardisation(images: NDArray[np.uint8]) -> Scaling:
    """Scale each channel to mean 0 and standard deviation 1; a constant channel becomes zeros.

    Counting how often each of the 256 values occurs is exact for any number of images.
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

    Arrays with three dimensions are grey images. With four, channels are last if the last axis has length 1, 3 or 4 and
    the second has not.
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim != 4:
        raise damaged(path, f"its images have shape {images.shape}; they must have 3 or 4 dimensions")
    if images.shape[3] in _COLOUR_CHANNELS and images.shape[1] not in _COLOUR_CHANNELS:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def _value_counts(values: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How often each of the 256 values occurs; in blocks, because `bincount` converts its input to 64 bits."""
    counts = np.zeros(256, np.int64)
    for start in range(0, len(values), _BLOCK):
        counts += np.bincount(values[start : start + _BLOCK].ravel(), minlength=256)
    return counts
