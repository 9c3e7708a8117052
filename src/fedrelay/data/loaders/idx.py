"""MNIST and data sets in the same format: four IDX files, plain or gzip.

An IDX file is two zero bytes, a type (8 = unsigned byte), the number of dimensions, their lengths as
big-endian 32-bit integers, and the values.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.file_checks import (
    capacity,
    check_size,
    checked_labels,
    damaged,
    existing,
    integers,
    open_binary,
    reading,
    renumbered,
)
from fedrelay.data.loaders.image_arrays import image_dataset
from fedrelay.data.loaders.npz import read_arrays
from fedrelay.data.search_folders import plain_or_gzip

PARTS = ("train", "t10k")
FILES = tuple(f"{part}-{kind}-ubyte" for part in PARTS for kind in ("images-idx3", "labels-idx1"))
WRITERS = "mnist_writer_ids_from_qmnist.npz"
"""Optional file beside those of MNIST, with the writer of each train image: the natural clients."""
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
"""The folder of Debian's package `dataset-fashion-mnist`."""

_UNSIGNED_BYTE = 8


def recognise(location: Path) -> Path | None:
    """A folder with all four files."""
    return location if all(plain_or_gzip(location, name) for name in FILES) else None


def load(folder: Path, name: str) -> Dataset:
    """The images of MNIST or Fashion-MNIST; those of MNIST by writer where the writers are known."""
    train, test = (_read_part(folder, part) for part in PARTS)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise damaged(folder, f"the images differ in size: {train[0].shape[2:]} in train, {test[0].shape[2:]} in test")
    writers = folder / WRITERS
    clients = _read_writers(writers, len(train[0])) if name == "mnist" and writers.is_file() else None
    return image_dataset(name, train, test, classes=10, client_train=clients)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The unsigned bytes of an IDX file with this number of dimensions."""
    with reading(path), open_binary(path) as file:
        expected = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
        magic = file.read(4)
        if magic != expected:
            found = magic.hex(" ") or "(none)"
            raise damaged(path, f"is not the expected IDX file: starts with {found}, not {expected.hex(' ')}")
        lengths = file.read(4 * dimensions)
        if len(lengths) < 4 * dimensions:
            raise damaged(path, "ends in the middle of its header")
        shape = struct.unpack(f">{dimensions}I", lengths)
        size = math.prod(shape)
        if size > capacity(path):
            raise damaged(path, f"its header claims {size:,} values, more than the file can contain")
        check_size(path, size)
        values = file.read(size + 1)
    if len(values) != size:
        found = "more" if len(values) > size else f"only {len(values):,}"
        raise damaged(path, f"its header claims {size:,} values, but it has {found}")
    return np.frombuffer(values, np.uint8).reshape(shape).copy()


def _read_part(folder: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images = read_idx(existing(folder, f"{part}-images-idx3-ubyte"), dimensions=3)
    label_file = existing(folder, f"{part}-labels-idx1-ubyte")
    labels = checked_labels(label_file, read_idx(label_file, dimensions=1), classes=10, samples=len(images))
    return images[:, None], labels


def _read_writers(path: Path, samples: int) -> NDArray[np.int64]:
    writers = integers(path, read_arrays(path, ("train_writer",))["train_writer"], "writers")
    if len(writers) != samples:
        raise damaged(path, f"has {len(writers)} writer ids for {samples} train images")
    return renumbered(writers)
