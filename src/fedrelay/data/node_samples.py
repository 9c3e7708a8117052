"""A data owner's own samples, from an `.npz` file or a function, with some held out for evaluation.

Numbers are used as they are, because no owner knows the statistics of the others; tables, for which nodes share them,
are read by `engines/flower/node/node_table.py`. 8-bit images are scaled to 0 … 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.federation import ArrayFederation, Federation, federate
from fedrelay.data.held_out_rows import held_out_rows
from fedrelay.data.loaders.file_checks import missing
from fedrelay.data.loaders.npz import read_arrays
from fedrelay.data.node_torch_datasets import as_datasets, owner_datasets
from fedrelay.data.samples import SampleSource
from fedrelay.errors import DataError, SpecError
from fedrelay.files import expand_home
from fedrelay.user_code import call_function

MAX_CLASSES = 100_000
"""Larger labels are refused: the largest label of one owner determines the size of every model."""

Arrays = Mapping[str, NDArray[Any]]
"""`x`, `y`, and optionally `x_test` and `y_test`."""


def owner_federation(arrays: Arrays, *, hold_out: float = 0.0, classes: int | None = None) -> ArrayFederation:
    """A federation with one client: a data owner.

    Args:
        arrays: The samples.
        hold_out: Share of the samples to hold out as test samples, if there are no test samples.
        classes: The number of classes; default: as many as the labels need.

    Raises:
        DataError: An array is not valid.
        SpecError: A setting is not valid.
    """
    _check_options(hold_out, classes)
    for name, array in arrays.items():
        _check_values(name, array)
    x, y = arrays["x"], arrays["y"]
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError("x_test and y_test: give both or neither")
    if "x_test" in arrays and hold_out:
        raise DataError("--holdout: has no effect, because there are test samples already")
    x_test, y_test = arrays.get("x_test", x[:0]), arrays.get("y_test", y[:0])
    if hold_out and len(x) == len(y):
        rest, held_out = held_out_rows(len(y), hold_out, labels=y)
        x, y, x_test, y_test = x[rest], y[rest], x[held_out], y[held_out]
    has_test = len(y_test) > 0
    # `federate` needs at least one test sample; a train sample stands in and is removed again below.
    federation = federate(
        x,
        y,
        x_test if has_test else x[:1],
        y_test if has_test else y[:1],
        client_ids=np.zeros(len(y), dtype=np.int64),
        partition="natural",
        classes=classes or (_classes(y, y_test) if y.dtype.kind in "iu" else None),
    )
    if has_test:
        return federation
    data = federation.dataset
    return replace(federation, dataset=replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0]))


def _check_options(hold_out: float, classes: int | None) -> None:
    check_hold_out(hold_out)
    if classes is not None and not 1 <= classes <= MAX_CLASSES:
        raise SpecError(f"--classes: must be an integer from 1 to {MAX_CLASSES:,}, got {classes:,}")


def check_hold_out(share: float) -> None:
    """Refuse a share of held-out samples that is none."""
    if not 0 <= share < 1:
        raise SpecError(f"--holdout: must be at least 0 and less than 1, got {share:g}")


def _check_values(name: str, array: NDArray[Any]) -> None:
    """Refuse bad values and say where they are. Arrays of other types are refused by `federate`."""
    if array.dtype.kind == "f" and name.startswith("x"):
        wrong, problem = ~np.isfinite(array), "is not a finite number"
    elif array.dtype.kind in "iu" and name.startswith("y"):
        wrong, problem = array >= MAX_CLASSES, f"is not a label; labels are 0, 1, … {MAX_CLASSES - 1:,}"
        wrong |= (array < 0) & (array != IGNORED_LABEL if array.ndim > 1 else True)
    else:
        return
    if wrong.any():
        place = tuple(int(at) for at in np.unravel_index(int(wrong.argmax()), array.shape))
        raise DataError(f"{name}{list(place)}: {array[place]} {problem}")


def _classes(*labels: NDArray[Any]) -> int | None:
    """The number of classes that the labels need; None if they are not integers."""
    whole = all(part.dtype.kind in "iu" for part in labels)
    return max((int(part.max()) + 1 for part in labels if part.size), default=None) if whole else None


def open_owner_data(
    source: str,
    *,
    hold_out: float = 0.0,
    classes: int | None = None,
) -> Federation:
    """A federation with one client: the data owner whose samples `fedrelay node --data` names.

    Args:
        source: An `.npz` file, or a function `MODULE:FUNCTION`, which may also return a torch `Dataset`.
        hold_out: Share of the samples to hold out as test samples, if there are no test samples.
        classes: The number of classes; default: as many as the labels need.

    Raises:
        DataError: The samples cannot be read or are not valid.
        SpecError: A setting is not valid.
    """
    _check_options(hold_out, classes)
    found = _read(source)
    if (datasets := as_datasets(found)) is not None:
        return owner_datasets(*datasets, hold_out=hold_out, classes=classes)
    return owner_federation(_named_arrays(source, found), hold_out=hold_out, classes=classes)


def open_test_samples(source: str, classes: int | None) -> SampleSource:
    """Test samples in one place, from what `fedrelay node --data` takes: those kept for testing, or else all of them.

    Args:
        source: An `.npz` file, or a function `MODULE:FUNCTION`, which may also return a torch `Dataset`.
        classes: The number of classes of a torch `Dataset`; None if targets are numbers.

    Raises:
        DataError: The samples cannot be read or are not valid.
        SpecError: The source is none.
    """
    found = _read(source)
    if (datasets := as_datasets(found)) is not None:
        train, test = datasets
        chosen = train if test is None else test
        return owner_datasets(chosen, chosen, classes=classes).test
    arrays = _named_arrays(source, found)
    own = owner_federation(arrays)
    return own.test if "x_test" in arrays else own.train_samples(0)


def _read(source: str) -> Any:
    """What a file holds, or what a function returned."""
    path = expand_home(Path(source))
    if path.suffix.lower() == ".npz":
        if not path.is_file():
            raise missing(path)
        return read_arrays(path, ("x", "y"), optional=("x_test", "y_test"))
    if ":" in source and os.sep not in source:
        return call_function(source, failure=DataError)
    raise SpecError(f"{source}: must be a .npz file, a .csv or .parquet table, or MODULE:FUNCTION")


def _named_arrays(source: str, value: Any) -> dict[str, NDArray[Any]]:
    """Arrays by name, from (x, y), (x, y, x_test, y_test), or a mapping of these names."""
    names = ("x", "y", "x_test", "y_test")
    if isinstance(value, tuple | list) and len(value) in (2, 4):
        value = dict(zip(names, value, strict=False))
    if not isinstance(value, Mapping) or not {"x", "y"} <= set(value) <= set(names):
        kind = f"{type(value).__name__} of {len(value)}" if isinstance(value, Sized) else type(value).__name__
        raise DataError(f"{source}: must return (x, y) or (x, y, x_test, y_test), got {kind}")
    return {name: _array(source, name, part) for name, part in value.items()}


def _array(source: str, name: str, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception as error:  # user code may raise anything
        raise DataError(f"{source}: {name} is not an array ({type(error).__name__})") from None
    if not array.ndim or array.dtype.kind not in "biufUS":
        raise DataError(f"{source}: {name} must be an array of numbers, got {type(value).__name__}")
    return array
