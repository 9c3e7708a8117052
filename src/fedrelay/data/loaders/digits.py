"""The 8×8 handwritten digits that come with scikit-learn: 1,797 images, always there.

The set has no test part of its own; a fifth of each class is set aside, always the same one.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedrelay.data.dataset import Dataset, Scaling
from fedrelay.data.loaders.images import image_dataset
from fedrelay.data.loaders.split import stratified_split


def home() -> list[Path]:
    """The folder of the package that brings the digits."""
    spec = find_spec("sklearn")
    return [Path(spec.origin).parent] if spec and spec.origin else []


def recognise(location: Path) -> Path | None:
    """The digits lie in their package and nowhere else."""
    return location if location in home() else None


def load(_package: Path) -> Dataset:
    """Grey values 0 … 16, which models see as 0 … 1, `[n, 1, 8, 8]`, 10 classes."""
    from sklearn.datasets import load_digits

    flat, labels = load_digits(return_X_y=True)
    x, y = flat.reshape(-1, 1, 8, 8).astype(np.uint8), labels.astype(np.int64)
    train, test = stratified_split(y, "digits-split")
    to_unit_range = Scaling((0.0,), (1 / 16,))
    return image_dataset("digits", (x[train], y[train]), (x[test], y[test]), classes=10, scaling=to_unit_range)
