"""Shapes: grey images with discs and squares, and the class of every pixel. Drawn by code, so always available.

Paper: none; the smallest segmentation data whose clients differ.

Rule: a client is a scanner with a brightness, a contrast and a noise of its own, and with its own share of discs. Every
image has one or two objects, which may overlap; the later one hides the earlier. Pixels are background (0), disc (1) or
square (2). Every scanner has test images too, drawn like its train images.

Deviations: none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.image_arrays import standardisation
from fedrelay.rng import generator

SIDE = 16
CLASSES = 3
SMALLEST_RADIUS, LARGEST_RADIUS = 2, 4
MOST_OBJECTS = 2
SEED = 1
"""The seed of the images that a spec means by `shapes`."""

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images `[n, 1, side, side]` and the class of every pixel `[n, side, side]`."""


def package_folder() -> list[Path]:
    """The folder of this file: nothing is read."""
    return [Path(__file__).parent]


def recognise(location: Path) -> Path | None:
    """The images are drawn and are nowhere else."""
    return location if location in package_folder() else None


def load(_package: Path) -> Dataset:
    """The images of 20 scanners, 20 to train and 5 to test from each; always the same."""
    return draw_shapes(SEED)


def draw_shapes(seed: int, *, clients: int = 20, train: int = 20, test: int = 5) -> Dataset:
    """Draw a data set.

    Args:
        seed: The same seed gives the same images. More clients do not change the images of the first.
        clients: The number of scanners.
        train: Train images of each scanner.
        test: Test images of each scanner.
    """
    scanners = [_scan(generator(seed, "shapes", client), train + test) for client in range(clients)]
    x, y = (np.stack(parts) for parts in zip(*scanners, strict=True))
    return Dataset(
        name="shapes",
        kind="image",
        x_train=np.concatenate(x[:, :train]),
        y_train=np.concatenate(y[:, :train]),
        x_test=np.concatenate(x[:, train:]),
        y_test=np.concatenate(y[:, train:]),
        classes=CLASSES,
        scaling=standardisation(np.concatenate(x[:, :train])),
        client_train=np.repeat(np.arange(clients), train),
        task="segmentation",
        test_sample_names={"client": np.repeat(np.arange(clients), test)},
    )


def _scan(rng: np.random.Generator, count: int) -> Images:
    """The images of one scanner."""
    brightness, contrast, noise = rng.uniform(20, 100), rng.uniform(60, 120), rng.uniform(5, 20)
    disc_share = rng.beta(0.5, 0.5)
    values = np.full((count, SIDE, SIDE), brightness)
    labels = np.zeros((count, SIDE, SIDE), np.int64)
    for value, label in zip(values, labels, strict=True):
        for _ in range(rng.integers(1, MOST_OBJECTS + 1)):
            is_disc = rng.random() < disc_share
            inside = _object(rng, is_disc=is_disc)
            value[inside] = brightness + contrast * rng.uniform(0.8, 1.2)
            label[inside] = 1 if is_disc else 2
    values += noise * rng.standard_normal(values.shape)
    return np.clip(values, 0, 255).astype(np.uint8)[:, None], labels


def _object(rng: np.random.Generator, *, is_disc: bool) -> NDArray[np.bool_]:
    """The pixels of a disc or a square at a random place, completely inside the image."""
    radius = int(rng.integers(SMALLEST_RADIUS, LARGEST_RADIUS + 1))
    row, column = rng.integers(radius, SIDE - radius, 2)
    rows, columns = np.arange(SIDE)[:, None] - row, np.arange(SIDE)[None] - column
    inside: NDArray[np.bool_] = (
        rows**2 + columns**2 <= radius**2 if is_disc else np.maximum(abs(rows), abs(columns)) <= radius
    )
    return inside
