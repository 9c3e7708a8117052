"""A data owner's own samples: from an `.npz` file, a CSV table or a function, with some kept apart to judge models.

Numbers are taken as they are, since no owner knows the others' statistics; 8-bit images are scaled to 0 … 1.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import ArrayFederation, federate
from fedrelay.data.loaders.npz import read_arrays
from fedrelay.errors import DataError, FedRelayError, SpecError
from fedrelay.rng import generator

MOST_CLASSES = 100_000
"""A higher label is a mistake: one owner's highest label sizes everybody's model."""

Arrays = Mapping[str, NDArray[Any]]
"""`x` and `y`, and perhaps `x_test` and `y_test`."""


def held(arrays: Arrays, *, hold_out: float = 0.0, seed: int = 1, classes: int | None = None) -> ArrayFederation:
    """The samples of one owner; without test samples of their own, a share of them is kept apart."""
    x, y = arrays["x"], arrays["y"]
    if ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError("x_test and y_test: there must be both or none")
    if "x_test" in arrays and hold_out:
        raise DataError("--hold-out: there are test samples already")
    x_test, y_test = arrays.get("x_test", x[:0]), arrays.get("y_test", y[:0])
    if hold_out and len(x) == len(y):
        order = generator(seed, "hold out").permutation(len(y))
        apart, rest = np.split(order, [int(hold_out * len(y))])
        rest.sort()
        x, y, x_test, y_test = x[rest], y[rest], x[apart], y[apart]
    tested = len(y_test) > 0
    classes = classes or _classes(y, y_test)
    if classes is not None and classes > MOST_CLASSES:
        raise DataError(f"labels are whole numbers 0 … {MOST_CLASSES - 1:,}; {classes - 1:,} is none of them")
    # A federation wants a test sample to look at; it is taken out again where there is none.
    found = federate(
        x,
        y,
        x_test if tested else x[:1],
        y_test if tested else y[:1],
        client_ids=np.zeros(len(y), dtype=np.int64),
        partition="natural",
        classes=classes,
    )
    if tested:
        return found
    data = found.dataset
    return replace(found, dataset=replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0]))


def _classes(*labels: NDArray[Any]) -> int | None:
    """As many as the labels need, if they are labels at all."""
    whole = all(part.dtype.kind in "iu" for part in labels)
    return max((int(part.max()) + 1 for part in labels if part.size), default=None) if whole else None


def read_samples(source: str, label: str | None = None) -> dict[str, NDArray[Any]]:
    """Samples from an `.npz` file, a CSV table, or a function of the owner's own, `MODULE:FUNCTION`."""
    path = Path(source).expanduser()
    if label is not None and path.suffix.lower() != ".csv":
        raise SpecError("--label: names the column of labels of a .csv file")
    if path.suffix.lower() == ".npz":
        if not path.is_file():
            raise DataError(f"{path}: there is no such file")
        return read_arrays(path, ("x", "y"), optional=("x_test", "y_test"))
    if path.suffix.lower() == ".csv":
        return _table(path, label)
    if ":" in source and os.sep not in source:
        return _named_arrays(source, called(source))
    raise SpecError(f"{source}: samples come from a .npz file, a .csv file or MODULE:FUNCTION")


def called(source: str) -> Any:
    """What a function of the owner's own gives back; modules are looked for in the current folder too."""
    module, _, name = source.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module), name)
        return function()
    except FedRelayError:
        raise
    except Exception as error:
        raise DataError(f"{source}: {type(error).__name__}: {error}") from None


def _named_arrays(source: str, value: Any) -> dict[str, NDArray[Any]]:
    """(x, y), (x, y, x_test, y_test), or a mapping of these names."""
    names = ("x", "y", "x_test", "y_test")
    if isinstance(value, Sequence) and len(value) in (2, 4):
        value = dict(zip(names, value, strict=False))
    if not isinstance(value, Mapping) or not {"x", "y"} <= set(value) <= set(names):
        raise DataError(f"{source}: must give (x, y) or (x, y, x_test, y_test)")
    return {name: np.asarray(part) for name, part in value.items()}


def _table(path: Path, label: str | None) -> dict[str, NDArray[Any]]:
    """The rows of a CSV file with a line of names; the labels are the named column, or the last."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        names = [name.strip() for name in lines[0].split(",")]
        rows = np.array([[float(value) for value in line.split(",")] for line in lines[1:]], ndmin=2)
    except (OSError, UnicodeDecodeError, ValueError, IndexError) as error:
        raise DataError(f"{path}: is no table of numbers with one line of names ({error})") from None
    if rows.shape[1:] != (len(names),) or len(names) < 2 or not len(rows):
        raise DataError(f"{path}: {len(names)} names over {rows.shape} numbers")
    if label is not None and label not in names:
        raise DataError(f"{path}: has no column {label!r}; it has {', '.join(names)}")
    column = names.index(label) if label is not None else len(names) - 1
    labels = rows[:, column].astype(np.int64)
    if not np.array_equal(labels, rows[:, column]):
        raise DataError(f"{path}: the column {names[column]!r} holds labels that are no whole numbers")
    return {"x": np.delete(rows, column, axis=1).astype(np.float32), "y": labels}
