"""FEMNIST: handwritten digits and letters by writer, as LEAF's JSON files or as a NumPy archive.

62 classes: digits, upper-case and lower-case letters. Ink is dark on white, as in LEAF.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import leaf, npz
from fedrelay.data.loaders.file_checks import checked_labels, damaged, renumbered
from fedrelay.data.loaders.image_arrays import image_dataset

CLASSES = 62
SIDE = 28


def recognise(location: Path) -> Path | None:
    """A `.npz` file, or a folder with `femnist*.npz` or LEAF's `train` and `test`."""
    if location.is_file():
        return npz.recognise(location)
    return next(iter(sorted(location.glob("femnist*.npz"))), None) or leaf.recognise(location)


def load(location: Path) -> Dataset:
    """Grey images `[n, 1, 28, 28]`; the writers are the natural clients."""
    if location.is_file():
        return npz.load_images(location, "femnist", CLASSES, client_key="writer_train")
    x_train, y_train, writers = _read_part(location / "train")
    x_test, y_test, _ = _read_part(location / "test")
    return image_dataset("femnist", (x_train, y_train), (x_test, y_test), CLASSES, renumbered(writers))


def _read_part(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.str_]]:
    images, labels, writers = [], [], []
    for user in leaf.read_users(folder):
        images.append(_pixels(user))
        labels.append(checked_labels(user.path, user.y, CLASSES, len(user.x)))
        writers += [user.name] * len(user.x)
    if not images:
        raise damaged(folder, "has no samples")
    return np.concatenate(images), np.concatenate(labels), np.array(writers)


def _pixels(user: leaf.LeafUser) -> NDArray[np.uint8]:
    """LEAF's values are multiples of 1/255 between 0 (ink) and 1 (paper)."""
    try:
        values = np.asarray(user.x, np.float64)
    except (ValueError, TypeError) as error:
        raise damaged(user.path, f"the images of user {user.name} are not rows of numbers") from error
    if values.ndim != 2 or values.shape[1] != SIDE * SIDE:
        form = f"shape {values.shape}, not (n, {SIDE * SIDE})"
        raise damaged(user.path, f"the images of user {user.name} have {form}")
    if not (values.min() >= 0 and values.max() <= 1):
        raise damaged(user.path, f"the images of user {user.name} have values outside 0 … 1")
    return np.rint(values * 255).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)
