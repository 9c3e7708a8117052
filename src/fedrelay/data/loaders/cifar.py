"""CIFAR-10 and CIFAR-100: the official Python batches, their archive, or a NumPy archive.

The batches are pickles, and a pickle can call any function that it names. Only the three names that the official files
need to describe an array are allowed, and they are replaced by harmless stand-ins: no function of NumPy or of any other
module is called.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import npz
from fedrelay.data.loaders.file_checks import DEFLATE_LIMIT, check_size, checked_labels, damaged, reading
from fedrelay.data.loaders.image_arrays import image_dataset

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class CifarFormat:
    """The files of one of the two data sets."""

    name: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    labels: bytes
    classes: int

    @property
    def batches(self) -> tuple[str, ...]:
        return (*self.train, self.test)


CIFAR10 = CifarFormat(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels=b"labels",
    classes=10,
)
CIFAR100 = CifarFormat(
    name="cifar100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    labels=b"fine_labels",
    classes=100,
)


def recognise(location: Path, layout: CifarFormat) -> Path | None:
    """The folder of batches, else the official archive, else a NumPy archive named after the data set."""
    if location.is_file():
        return location if location.name.endswith((".tar.gz", ".npz")) else None
    for folder in (location / layout.folder, location):
        if all((folder / batch).is_file() for batch in layout.batches):
            return folder
    # A cifar100.npz is no cifar10: no digit may follow the name.
    archives = sorted(location.glob(f"{layout.name}*.npz"))
    own = (path for path in archives if not path.stem.removeprefix(layout.name)[:1].isdigit())
    return next((path for path in (location / layout.archive, *own) if path.is_file()), None)


def load(location: Path, layout: CifarFormat) -> Dataset:
    """Colour images `[n, 3, 32, 32]`; CIFAR-100 with its 100 fine labels."""
    if location.suffix == ".npz":
        return npz.load_images(location, layout.name, layout.classes)
    raw = _from_archive(location, layout) if location.is_file() else _from_folder(location, layout)
    parts = {batch: _read_batch(location / batch, raw[batch], layout) for batch in layout.batches}
    images, labels = zip(*(parts[batch] for batch in layout.train), strict=True)
    train = np.concatenate(images), np.concatenate(labels)
    return image_dataset(layout.name, train, parts[layout.test], layout.classes)


def _from_folder(folder: Path, layout: CifarFormat) -> dict[str, bytes]:
    raw = {}
    for batch in layout.batches:
        with reading(folder / batch):
            raw[batch] = (folder / batch).read_bytes()
    return raw


def _from_archive(path: Path, layout: CifarFormat) -> dict[str, bytes]:
    """The batches in the archive, read without unpacking it to disk."""
    wanted = {f"{layout.folder}/{batch}": batch for batch in layout.batches}
    raw = {}
    with reading(path):
        limit = path.stat().st_size * DEFLATE_LIMIT
        try:
            with tarfile.open(path, "r:gz") as archive:
                for member in archive:
                    batch = wanted.get(member.name.removeprefix("./"))
                    if batch is None or not member.isreg():
                        continue
                    if member.size > limit:
                        raise damaged(path, f"{member.name} claims more bytes than the archive can hold")
                    check_size(path, member.size)
                    file = archive.extractfile(member)
                    raw[batch] = file.read() if file else b""
        except tarfile.TarError as error:
            raise damaged(path, f"is not a readable .tar.gz archive ({error})") from error
    if missing := [name for name, batch in wanted.items() if batch not in raw]:
        raise damaged(path, f"is missing {', '.join(missing)}")
    return raw


def _read_batch(path: Path, raw: bytes, layout: CifarFormat) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = _unpickle(path, raw)
    if not isinstance(batch, dict) or not {b"data", layout.labels} <= batch.keys():
        found = sorted(map(str, batch)) if isinstance(batch, dict) else type(batch).__name__
        raise damaged(path, f"contains {found}, not a table with {b'data'!r} and {layout.labels!r}")
    images, labels = batch[b"data"], batch[layout.labels]
    if not isinstance(images, _PickledArray) or not isinstance(labels, list):
        raise damaged(path, "its data is not an array, or its labels are not a list")
    values = images.values
    if values.ndim != 2 or values.shape[1] != math.prod(SHAPE):
        raise damaged(path, f"its images have shape {values.shape}, not (n, {math.prod(SHAPE)})")
    return values.reshape(-1, *SHAPE), checked_labels(path, labels, layout.classes, len(values))


class _PickledDtype:
    """Replaces `numpy.dtype`: stores the type code."""

    def __init__(self, code: object = None, *_options: object) -> None:
        self.code = code

    def __setstate__(self, _state: object) -> None:
        """Byte order and the like, which do not matter for single bytes."""


class _PickledArray:
    """Replaces `numpy.ndarray`: builds an array of unsigned bytes from its bytes and shape."""

    values: NDArray[np.uint8] = np.zeros(0, np.uint8)

    def __init__(self, *_blank: object) -> None:
        """The empty array that a pickle starts from."""

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _PickledDtype) or dtype.code not in (b"u1", "u1"):
            raise pickle.UnpicklingError("an array that does not have unsigned bytes")
        if not isinstance(raw, bytes) or not isinstance(shape, tuple):
            raise pickle.UnpicklingError("an array without bytes or shape")
        self.values = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C").copy()


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy", "dtype"): _PickledDtype,
    ("numpy", "ndarray"): _PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
}


class _RefusedError(Exception):
    """The pickle names something that is not allowed."""


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        """The stand-in for an allowed name; no module is ever imported."""
        if (module, name) not in _ALLOWED:
            raise _RefusedError(f"{module}.{name}")
        return _ALLOWED[module, name]


def _unpickle(path: Path, raw: bytes) -> object:
    try:
        for opcode, argument, _ in pickletools.genops(raw):
            if "PUT" in opcode.name and isinstance(argument, int) and argument > len(raw):
                raise ValueError("it claims more objects than it can hold")
        return _BatchUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except _RefusedError as error:
        raise damaged(path, f"refused: it names {error}, which no CIFAR batch needs") from error
    except Exception as error:  # damaged pickles raise almost any exception
        raise damaged(path, f"is not a readable batch ({error})") from error
