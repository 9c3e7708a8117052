"""Folders of image files, one folder per class: CINIC-10, PACS, or your own.

Two layouts are supported:

- `train/<class>/*` and `test/<class>/*` (CINIC-10's `valid` folder is ignored);
- `<domain>/<class>/*`: each domain is a natural client. A fifth of each class of each domain, always the same, is the
  test part.

All images get the most frequent size of the train images (the wider one on a tie), by bilinear resizing. They are grey
if all files are grey, otherwise RGB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.file_checks import check_size, damaged, renumbered
from fedrelay.data.loaders.image_arrays import image_dataset
from fedrelay.data.loaders.stratified_split import stratified_split
from fedrelay.errors import DataError

if TYPE_CHECKING:  # PIL takes a while to load, and few runs read images
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
CINIC10_FOLDERS = ("train/airplane", "test/airplane")
PACS_FOLDERS = ("art_painting", "cartoon", "photo", "sketch")

_GREY_MODES = ("1", "L", "LA")
_COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV")


class _ImageFile(NamedTuple):
    path: Path
    part: str
    label: str


def recognise(location: Path) -> Path | None:
    """Any folder; its layout is checked when it is loaded."""
    return location if location.is_dir() else None


def recognise_with(location: Path, folders: Sequence[str], inside: str = "") -> Path | None:
    """The location, or its sub-folder `inside`, if it has all these folders."""
    for root in (location, location / inside):
        if all((root / folder).is_dir() for folder in folders):
            return root
    return None


recognise_cinic10 = partial(recognise_with, folders=CINIC10_FOLDERS)
recognise_pacs = partial(recognise_with, folders=PACS_FOLDERS, inside="kfold")


def load(root: Path, name: str | None = None) -> Dataset:
    """The images below `root`, in either layout; classes are numbered in the order of their names."""
    parts = _folders(root)
    names = {part.name for part in parts}
    if {"train", "test"} <= names:
        return _load_parts(root, name or root.resolve().name)
    if names & {"train", "test"}:
        raise damaged(root, "has only one of the folders `train` and `test`")
    return _load_domains(root, parts, name or root.resolve().name)


def _load_parts(root: Path, name: str) -> Dataset:
    train, test = _image_files(root / "train"), _image_files(root / "test")
    labels = sorted({file.label for file in train})
    if unknown := sorted({file.label for file in test} - set(labels)):
        raise damaged(root / "test", f"has the classes {unknown}, which are not in train")
    return _dataset(name, train, test, labels)


def _load_domains(root: Path, domains: Sequence[Path], name: str) -> Dataset:
    if not domains:
        raise damaged(root, "needs folders `train/<class>` and `test/<class>`, or `<domain>/<class>`")
    files = [file for domain in domains for file in _image_files(domain)]
    labels = sorted({file.label for file in files})
    clients = renumbered(np.array([file.part for file in files]))
    strata = clients * len(labels) + _label_numbers(files, labels)
    train, test = stratified_split(strata, "image-folder-split")
    if not test.size:
        raise damaged(root, "has too few images per class to hold out a fifth for testing")
    return _dataset(name, [files[i] for i in train], [files[i] for i in test], labels, clients[train])


def _dataset(
    name: str,
    train: Sequence[_ImageFile],
    test: Sequence[_ImageFile],
    labels: Sequence[str],
    clients: NDArray[np.int64] | None = None,
) -> Dataset:
    target = _common_format(train, test)
    decoded = [(_decode(part, *target), _label_numbers(part, labels)) for part in (train, test)]
    return image_dataset(name, decoded[0], decoded[1], len(labels), clients)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _image_files(part: Path) -> list[_ImageFile]:
    files = [
        _ImageFile(path, part.name, folder.name)
        for folder in _folders(part)
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]
    if not files:
        raise damaged(part, f"has no images in class folders ({', '.join(SUFFIXES)})")
    return files


def _label_numbers(files: Sequence[_ImageFile], labels: Sequence[str]) -> NDArray[np.int64]:
    number = {label: index for index, label in enumerate(labels)}
    return np.array([number[file.label] for file in files], np.int64)


def _common_format(train: Sequence[_ImageFile], test: Sequence[_ImageFile]) -> tuple[int, int, str]:
    """Width, height and mode that all images are brought to, from the headers of the files alone."""
    headers = [_header(file.path) for file in (*train, *test)]
    sizes = Counter(size for size, _ in headers[: len(train)])
    width, height = max(sizes, key=lambda size: (sizes[size], size))
    grey = all(mode in _GREY_MODES for _, mode in headers)
    return width, height, "L" if grey else "RGB"


def _header(path: Path) -> tuple[tuple[int, int], str]:
    with _opened(path) as image:
        if image.mode not in (*_GREY_MODES, *_COLOUR_MODES):
            raise damaged(path, f"has the pixel format {image.mode}; only 8 bits per channel are supported")
        return image.size, image.mode


def _decode(files: Sequence[_ImageFile], width: int, height: int, mode: str) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    channels = 1 if mode == "L" else 3
    check_size(files[0].path.parent, len(files) * channels * height * width)
    images = np.empty((len(files), channels, height, width), np.uint8)
    for slot, file in zip(images, files, strict=True):
        with _opened(file.path) as image:
            fitted = image.convert(mode).resize((width, height), Resampling.BILINEAR)
            slot[:] = np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)
    return images


@contextmanager
def _opened(path: Path) -> Iterator[Image]:
    from PIL.Image import open as open_image

    try:
        with open_image(path) as image:
            yield image
    except DataError:
        raise
    except Exception as error:  # decoders of damaged files raise almost any exception
        raise damaged(path, f"is not a readable image ({error})") from error
