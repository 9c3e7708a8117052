"""Opens files that may be missing, damaged or malicious, and checks their content."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.search_folders import plain_or_gzip
from fedrelay.errors import DataError
from fedrelay.experiment.error_messages import nearest_path

DEFLATE_LIMIT = 1032
"""Deflate never expands one byte to more than this; a file that claims more is damaged."""

_PIECE = 1 << 24


def damaged(path: Path, problem: str) -> DataError:
    """The error for a file that cannot be used."""
    return DataError(f"{path}: {problem}")


def missing(path: Path) -> DataError:
    """The error for a file that is not there."""
    return damaged(path, f"file not found{nearest_path(path)}")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error while reading `path` into a `DataError` that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, f"the compressed data is damaged or truncated ({error})") from error
    except UnicodeDecodeError as error:
        raise damaged(path, f"is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise damaged(path, "does not fit in memory") from error


def open_binary(path: Path) -> io.BufferedIOBase:
    """Open `path` for reading; decompress it if its name ends in `.gz`."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def read_text(path: Path) -> str:
    """The text of a plain or gzip file."""
    with reading(path), open_binary(path) as file:
        content = bytearray()
        while piece := file.read(_PIECE):  # in pieces, because a small file may unpack to a huge one
            content += piece
            check_size(path, len(content))
        return content.decode("utf-8")


def check_size(path: Path, size: int) -> None:
    """Refuse data that would fill the memory: a small file can unpack to a thousand times its size."""
    if size > (limit := max_bytes()):
        raise damaged(path, f"unpacks to {size:,} bytes or more; the limit is {limit:,}, half of this machine's memory")


def max_bytes() -> int:
    """Half of this machine's memory, or of 8 GB where the system does not say how much there is (Windows)."""
    if not hasattr(os, "sysconf"):
        return 8 * 2**30 // 2
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def existing(folder: Path, name: str) -> Path:
    """The file `name` or `name.gz`, which must be there."""
    path = plain_or_gzip(folder, name)
    if path is None:
        raise damaged(folder / name, "not found, and no .gz either")
    return path


def capacity(path: Path) -> int:
    """The largest number of bytes that a plain or gzip file can contain."""
    size = path.stat().st_size
    return size * DEFLATE_LIMIT if path.suffix == ".gz" else size


def checked_labels(
    path: Path, values: Sequence[object] | NDArray[np.generic], classes: int, samples: int
) -> NDArray[np.int64]:
    """`values` as labels 0 … `classes`-1, one for each of `samples` samples."""
    labels = integers(path, values, "labels")
    if len(labels) != samples:
        raise damaged(path, f"has {len(labels)} labels for {samples} samples")
    if samples == 0:
        raise damaged(path, "has no samples")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        worst = lowest if lowest < 0 else highest
        raise damaged(path, f"has the label {worst}; labels are 0 to {classes - 1}")
    return labels


def integers(path: Path, values: Sequence[object] | NDArray[np.generic], what: str) -> NDArray[np.int64]:
    """`values` as a flat array of 64-bit integers."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise damaged(path, f"its {what} are not a list of integers") from error
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise damaged(path, f"its {what} are {array.dtype} of shape {array.shape}, not a list of integers")
    return array.astype(np.int64)


def renumbered(ids: NDArray[np.generic]) -> NDArray[np.int64]:
    """The rank of each id among the sorted ids: 0, 1, 2, …"""
    _, numbers = np.unique(ids, return_inverse=True)
    return np.asarray(numbers, np.int64)
