"""NumPy archives with `x_train`, `y_train`, `x_test`, `y_test` and optionally `client_train`, the client of each
sample.

The kind of data follows from shape and type:

- arrays with 3 or 4 dimensions are images, with 5 volumes, with 2 tables, or tokens for a language model;
- 8-bit images are standardised like all image data sets;
- other numbers are used as they are, as 32-bit floats.

Targets are read as the task needs them. Without a task, they say what they are for, as in `fr.federate`: one label,
several labels, a label for each pixel or voxel, or numbers.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import Kind, own_targets, task_of_targets
from fedrelay.data.loaders.file_checks import (
    DEFLATE_LIMIT,
    check_size,
    checked_labels,
    damaged,
    integers,
    reading,
    renumbered,
)
from fedrelay.data.loaders.image_arrays import channels_first, image_dataset, standardisation
from fedrelay.errors import DataError

KEYS = ("x_train", "y_train", "x_test", "y_test")
Labelled = tuple[NDArray[Any], NDArray[np.int64]]

_HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def recognise(location: Path) -> Path | None:
    """Any file whose name ends in `.npz`."""
    return location if location.suffix == ".npz" and location.is_file() else None


def load(path: Path, task: str | None = None) -> Dataset:
    """Any archive; the number of classes is the largest label plus 1.

    Args:
        path: The archive.
        task: The name of the task, if it is known; by default it follows from the targets.

    Raises:
        DataError: The archive is damaged, or its arrays do not fit each other or the task.
    """
    arrays = read_arrays(path, KEYS, optional=("client_train",))
    x_train, x_test = _inputs(path, arrays)
    kind = _kind(x_train, task)
    y_train, y_test = _targets(path, arrays, x_train, x_test, kind, task)
    numbers = y_train.dtype.kind == "f"
    classes = 0 if numbers else max((int(part.max()) + 1 for part in (y_train, y_test) if part.size), default=0)
    is_8_bit = kind == "image" and x_train.dtype == np.uint8
    if not is_8_bit and kind != "tokens":
        x_train, x_test = _finite_floats(path, x_train), _finite_floats(path, x_test)
    return Dataset(
        path.stem,
        kind,
        x_train,
        y_train,
        x_test,
        y_test,
        classes,
        scaling=standardisation(x_train) if is_8_bit else None,
        client_train=_clients(path, arrays.get("client_train"), len(x_train)),
        task=task_of_targets(y_train, kind),
    )


def _kind(x: NDArray[Any], task: str | None) -> Kind:
    if task == "language-model" and x.ndim == 2 and x.dtype.kind in "iu":
        return "tokens"
    kinds: dict[int, Kind] = {2: "tabular", 4: "image", 5: "volume"}
    return kinds[x.ndim]


def _targets(
    path: Path,
    arrays: dict[str, NDArray[Any]],
    x_train: NDArray[Any],
    x_test: NDArray[Any],
    kind: Kind,
    task: str | None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The targets of the train and the test part, as the task needs them."""
    found = arrays["y_train"], arrays["y_test"]
    one_label = all(y.dtype.kind in "iu" and math.prod(y.shape[1:]) == 1 and y.ndim <= 2 for y in found)
    if one_label and task != "regression":
        labels = [integers(path, y, "labels") for y in found]
        classes = max((int(part.max()) + 1 for part in labels if part.size), default=0)
        y_train, y_test = (
            checked_labels(path, y, classes, len(x)) for y, x in zip(found, (x_train, x_test), strict=True)
        )
        return y_train, y_test
    try:
        y_train, y_test = (
            own_targets(y, x, kind, key, task)
            for y, x, key in zip(found, (x_train, x_test), ("y_train", "y_test"), strict=True)
        )
    except DataError as error:
        raise damaged(path, str(error)) from None
    if y_train.dtype != y_test.dtype or y_train.shape[1:] != y_test.shape[1:]:
        shapes = f"{y_train.dtype} {list(y_train.shape)} and {y_test.dtype} {list(y_test.shape)}"
        raise damaged(path, f"y_train and y_test must be of the same kind, got {shapes}")
    return y_train, y_test


def load_images(path: Path, name: str, classes: int, client_key: str | None = None) -> Dataset:
    """A known data set of 8-bit images; `client_key` is the array with the client of each train image."""
    arrays = read_arrays(path, (*KEYS, *([client_key] if client_key else [])))
    train, test = _labelled(path, arrays, classes)
    images = train[0]
    if images.dtype != np.uint8 or images.ndim != 4:
        raise damaged(path, f"its samples are {images.dtype} of shape {images.shape[1:]}, not 8-bit images")
    clients = _clients(path, arrays[client_key], len(images)) if client_key else None
    return image_dataset(name, train, test, classes, clients)


def read_arrays(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an archive, and no others."""
    with reading(path):
        try:
            with zipfile.ZipFile(path) as archive:
                found = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
                if missing := [key for key in required if key not in found]:
                    raise damaged(path, f"is missing the arrays {missing}; it has {sorted(found)}")
                wanted = [*required, *(key for key in optional if key in found)]
                return {key: _read_array(path, archive, key) for key in wanted}
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            raise damaged(path, f"is not a readable NumPy archive ({error})") from error


def _read_array(path: Path, archive: zipfile.ZipFile, key: str) -> NDArray[Any]:
    """Read one array, after checking its header against the size of the archive."""
    member = archive.getinfo(f"{key}.npy")
    try:
        with archive.open(member) as file:
            version = npy.read_magic(file)
            if version not in _HEADER_READERS:
                raise damaged(path, f"stores {key} in the unknown format version {version}")
            shape, _, dtype = _HEADER_READERS[version](file)
            claimed = dtype.itemsize * math.prod(shape)
            available = min(member.file_size, member.compress_size * DEFLATE_LIMIT) - file.tell()
        if dtype.hasobject:
            raise damaged(path, f"stores {key} as Python objects, which is not safe to read")
        if claimed > available:
            raise damaged(path, f"the header of {key} claims {claimed:,} bytes, more than the file can contain")
        check_size(path, claimed)
        with archive.open(member) as file:
            array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    except (DataError, OSError, EOFError, zlib.error, MemoryError):
        raise
    except Exception as error:  # the header reader raises almost any exception
        raise damaged(path, f"the array {key} is damaged ({error})") from error
    return array


def _labelled(path: Path, arrays: dict[str, NDArray[Any]], classes: int) -> tuple[Labelled, Labelled]:
    """The train and the test part: samples in the layout of a `Dataset`, and one valid label for each."""
    x_train, x_test = _inputs(path, arrays)
    y_train = checked_labels(path, arrays["y_train"], classes, len(x_train))
    return (x_train, y_train), (x_test, checked_labels(path, arrays["y_test"], classes, len(x_test)))


def _inputs(path: Path, arrays: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The inputs of the train and the test part, in the layout of a `Dataset`."""
    x_train, x_test = (_samples(path, key, arrays[key]) for key in ("x_train", "x_test"))
    if x_train.shape[1:] != x_test.shape[1:]:
        raise damaged(path, f"train samples have shape {x_train.shape[1:]}, test samples {x_test.shape[1:]}")
    if x_train.dtype != x_test.dtype:
        raise damaged(path, f"train samples are {x_train.dtype}, test samples {x_test.dtype}")
    if not x_train.size or not x_test.size:
        raise damaged(path, "has no samples")
    return x_train, x_test


def _samples(path: Path, key: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim not in (2, 3, 4, 5) or values.dtype.kind not in "fiub":
        shape = f"{values.dtype} of shape {values.shape}"
        allowed = "2 (table), 3 or 4 (images) or 5 (volumes) dimensions"
        raise damaged(path, f"{key} is {shape}; it must be numbers with {allowed}")
    return channels_first(path, values) if values.ndim in (3, 4) else values


def _clients(path: Path, ids: NDArray[Any] | None, samples: int) -> NDArray[np.int64] | None:
    if ids is None:
        return None
    if ids.shape != (samples,) or ids.dtype.kind not in "iuSU":
        found = f"{ids.dtype} of shape {ids.shape}"
        raise damaged(path, f"its client ids are {found}, not one number or name for each of {samples} samples")
    return renumbered(ids)


def _finite_floats(path: Path, values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        floats = values.astype(np.float32)
    if not np.isfinite(floats).all():
        raise damaged(path, "has samples that are not finite 32-bit numbers")
    return floats
