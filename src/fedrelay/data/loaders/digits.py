"""The 8×8 handwritten digits that come with scikit-learn: 1,797 images, always available.

The data set has no test part. A fifth of each class, always the same, is used for testing. Only the package's file is
read: importing scikit-learn takes longer than a small run.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedrelay.data.dataset import Dataset, Scaling
from fedrelay.data.loaders.image_arrays import image_dataset
from fedrelay.data.loaders.stratified_split import stratified_split

IN_PACKAGE = Path("datasets", "data", "digits.csv.gz")
"""One row an image: 64 values and its digit."""


def package_folder() -> list[Path]:
    """The folder of scikit-learn."""
    spec = find_spec("sklearn")
    return [Path(spec.origin).parent] if spec and spec.origin else []


def recognise(location: Path) -> Path | None:
    """The digits are in scikit-learn and nowhere else."""
    return location if location in package_folder() and (location / IN_PACKAGE).is_file() else None


def load(package: Path) -> Dataset:
    """Grey images `[n, 1, 8, 8]`; values 0 … 16 are scaled to 0 … 1."""
    rows = _read(package / IN_PACKAGE)
    x, y = rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
    train, test = stratified_split(y, "digits-split")
    to_unit_range = Scaling((0.0,), (1 / 16,))
    return image_dataset("digits", (x[train], y[train]), (x[test], y[test]), classes=10, scaling=to_unit_range)


@cache
def _read(path: Path) -> np.ndarray:
    """Read once in a process: parsing takes as long as a few rounds, and a comparison has many runs."""
    rows = np.loadtxt(path, dtype=np.uint8, delimiter=",")
    rows.flags.writeable = False
    return rows
