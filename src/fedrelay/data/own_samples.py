"""A data owner's own samples: from an `.npz` file, a CSV table or a function, with some kept apart to judge models.

Numbers are taken as they are, since no owner knows the others' statistics; 8-bit images are scaled to 0 … 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.csv_table import read_table
from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.federation import ArrayFederation, federate
from fedrelay.data.loaders.npz import read_arrays
from fedrelay.errors import DataError, SpecError
from fedrelay.files import home_written_out
from fedrelay.rng import generator
from fedrelay.user_code import call_function

MOST_CLASSES = 100_000
"""A higher label is a mistake: one owner's highest label sizes everybody's model."""

Arrays = Mapping[str, NDArray[Any]]
"""`x` and `y`, and perhaps `x_test` and `y_test`."""


def held(arrays: Arrays, *, hold_out: float = 0.0, seed: int = 1, classes: int | None = None) -> ArrayFederation:
    """The samples of one owner; without test samples of their own, a share of them is kept apart."""
    if not 0 <= hold_out < 1:
        raise SpecError(f"--holdout: must be a share from 0 to below 1, got {hold_out:g}")
    for name, array in arrays.items():
        _check_values(name, array)
    x, y = arrays["x"], arrays["y"]
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError("x_test and y_test: there must be both or none")
    if "x_test" in arrays and hold_out:
        raise DataError("--holdout: the data already have test samples")
    x_test, y_test = arrays.get("x_test", x[:0]), arrays.get("y_test", y[:0])
    if hold_out and len(x) == len(y):
        order = generator(seed, "hold out").permutation(len(y))
        apart, rest = np.split(order, [int(hold_out * len(y))])
        rest.sort()
        x, y, x_test, y_test = x[rest], y[rest], x[apart], y[apart]
    tested = len(y_test) > 0
    if classes is not None and not 1 <= classes <= MOST_CLASSES:
        raise SpecError(f"--classes: must be a whole number from 1 to {MOST_CLASSES:,}, got {classes:,}")
    # A federation wants a test sample to look at; it is taken out again where there is none.
    found = federate(
        x,
        y,
        x_test if tested else x[:1],
        y_test if tested else y[:1],
        client_ids=np.zeros(len(y), dtype=np.int64),
        partition="natural",
        classes=classes or _classes(y, y_test),
    )
    if tested:
        return found
    data = found.dataset
    return replace(found, dataset=replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0]))


def _check_values(name: str, array: NDArray[Any]) -> None:
    """Refuse a value that is none, and say where it is; what is no array of numbers at all is refused later."""
    if array.dtype.kind == "f" and name.startswith("x"):
        wrong, what = ~np.isfinite(array), "no finite number"
    elif array.dtype.kind in "iu" and name.startswith("y"):
        wrong, what = array >= MOST_CLASSES, f"no label; labels are 0, 1, … {MOST_CLASSES - 1:,}"
        wrong |= (array < 0) & (array != IGNORED_LABEL if array.ndim > 1 else True)
    else:
        return
    if wrong.any():
        place = tuple(int(at) for at in np.unravel_index(int(wrong.argmax()), array.shape))
        raise DataError(f"{name}{list(place)}: {array[place]} is {what}")


def _classes(*labels: NDArray[Any]) -> int | None:
    """As many as the labels need, if they are labels at all."""
    whole = all(part.dtype.kind in "iu" for part in labels)
    return max((int(part.max()) + 1 for part in labels if part.size), default=None) if whole else None


def read_samples(source: str, label: str | None = None, *, header: bool = True) -> dict[str, NDArray[Any]]:
    """Samples from an `.npz` file, a CSV table, or a function of the owner's own, `MODULE:FUNCTION`."""
    path = home_written_out(Path(source))
    if label is not None and path.suffix.lower() != ".csv":
        raise SpecError("--label: names the column of labels of a .csv file")
    if not header and path.suffix.lower() != ".csv":
        raise SpecError("--no-header: is for .csv files")
    if path.suffix.lower() == ".npz":
        if not path.is_file():
            raise DataError(f"{path}: there is no such file")
        return read_arrays(path, ("x", "y"), optional=("x_test", "y_test"))
    if path.suffix.lower() == ".csv":
        return read_table(path, label, MOST_CLASSES, header=header)
    if ":" in source and os.sep not in source:
        return _named_arrays(source, call_function(source, failure=DataError))
    raise SpecError(f"{source}: samples come from a .npz file, a .csv file or MODULE:FUNCTION")


def _named_arrays(source: str, value: Any) -> dict[str, NDArray[Any]]:
    """(x, y), (x, y, x_test, y_test), or a mapping of these names."""
    names = ("x", "y", "x_test", "y_test")
    if isinstance(value, tuple | list) and len(value) in (2, 4):
        value = dict(zip(names, value, strict=False))
    if not isinstance(value, Mapping) or not {"x", "y"} <= set(value) <= set(names):
        kind = f"{type(value).__name__} of {len(value)}" if isinstance(value, Sized) else type(value).__name__
        raise DataError(f"{source}: must give (x, y) or (x, y, x_test, y_test), not {kind}")
    return {name: _array(source, name, part) for name, part in value.items()}


def _array(source: str, name: str, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever an object of the owner's own does when it is asked for its numbers
        raise DataError(f"{source}: {name} is no array ({type(error).__name__})") from None
    if not array.ndim or array.dtype.kind not in "biufUS":
        raise DataError(f"{source}: {name} is no array of numbers, but {type(value).__name__}")
    return array
