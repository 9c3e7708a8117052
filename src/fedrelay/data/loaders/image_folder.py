"""Folders of image files, the name of a folder being the class: CINIC-10, PACS, or your own.

Two layouts are read:

- `train/<class>/*` and `test/<class>/*` (a `valid` folder, as CINIC-10 has one, is left unread);
- `<domain>/<class>/*`: each domain is a natural client, and a fifth of each class of each domain, always
  the same one, makes the test part.

All images take the size that most train images have (the wider one on a tie); others are resized to it,
bilinearly. They are grey if all files are grey, otherwise in three colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.files import check_room, damaged, dense
from fedrelay.data.loaders.images import image_dataset
from fedrelay.data.loaders.split import stratified_split
from fedrelay.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
CINIC10_FOLDERS = ("train/airplane", "test/airplane")
PACS_FOLDERS = ("art_painting", "cartoon", "photo", "sketch")

_GREY_MODES = ("1", "L", "LA")
_COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV")


class _Picture(NamedTuple):
    path: Path
    part: str
    label: str


def recognise(location: Path) -> Path | None:
    """Any folder; whether it has one of the layouts shows when it is loaded."""
    return location if location.is_dir() else None


def recognise_with(location: Path, folders: Sequence[str], inside: str = "") -> Path | None:
    """The location, or its folder `inside`, that has all these folders."""
    for root in (location, location / inside):
        if all((root / folder).is_dir() for folder in folders):
            return root
    return None


recognise_cinic10 = partial(recognise_with, folders=CINIC10_FOLDERS)
recognise_pacs = partial(recognise_with, folders=PACS_FOLDERS, inside="kfold")


def load(root: Path, name: str | None = None) -> Dataset:
    """The images below `root`, in whichever layout; the classes are numbered by name."""
    parts = _folders(root)
    names = {part.name for part in parts}
    if {"train", "test"} <= names:
        return _load_parts(root, name or root.resolve().name)
    if names & {"train", "test"}:
        raise damaged(root, "has only one of the folders `train` and `test`")
    return _load_domains(root, parts, name or root.resolve().name)


def _load_parts(root: Path, name: str) -> Dataset:
    train, test = _pictures(root / "train"), _pictures(root / "test")
    labels = sorted({picture.label for picture in train})
    if unknown := sorted({picture.label for picture in test} - set(labels)):
        raise damaged(root / "test", f"has the classes {unknown}, which train has not")
    return _dataset(name, train, test, labels)


def _load_domains(root: Path, domains: Sequence[Path], name: str) -> Dataset:
    if not domains:
        raise damaged(root, "has neither `train/<class>` and `test/<class>` nor `<domain>/<class>` folders")
    pictures = [picture for domain in domains for picture in _pictures(domain)]
    labels = sorted({picture.label for picture in pictures})
    holders = dense(np.array([picture.part for picture in pictures]))
    strata = holders * len(labels) + _label_numbers(pictures, labels)
    train, test = stratified_split(strata, "image-folder-split")
    if not test.size:
        raise damaged(root, "has too few images in each class to set a fifth aside for testing")
    return _dataset(name, [pictures[i] for i in train], [pictures[i] for i in test], labels, holders[train])


def _dataset(
    name: str,
    train: Sequence[_Picture],
    test: Sequence[_Picture],
    labels: Sequence[str],
    holders: NDArray[np.int64] | None = None,
) -> Dataset:
    form = _common_form(train, test)
    decoded = [(_decode(part, *form), _label_numbers(part, labels)) for part in (train, test)]
    return image_dataset(name, decoded[0], decoded[1], len(labels), holders)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _pictures(part: Path) -> list[_Picture]:
    pictures = [
        _Picture(path, part.name, folder.name)
        for folder in _folders(part)
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]
    if not pictures:
        raise damaged(part, f"has no images in class folders ({', '.join(SUFFIXES)})")
    return pictures


def _label_numbers(pictures: Sequence[_Picture], labels: Sequence[str]) -> NDArray[np.int64]:
    number = {label: index for index, label in enumerate(labels)}
    return np.array([number[picture.label] for picture in pictures], np.int64)


def _common_form(train: Sequence[_Picture], test: Sequence[_Picture]) -> tuple[int, int, str]:
    """Width, height and mode that all images are brought to, from the headers of the files alone."""
    headers = [_header(picture.path) for picture in (*train, *test)]
    sizes = Counter(size for size, _ in headers[: len(train)])
    width, height = max(sizes, key=lambda size: (sizes[size], size))
    grey = all(mode in _GREY_MODES for _, mode in headers)
    return width, height, "L" if grey else "RGB"


def _header(path: Path) -> tuple[tuple[int, int], str]:
    with _opened(path) as image:
        if image.mode not in (*_GREY_MODES, *_COLOUR_MODES):
            raise damaged(path, f"has the pixel format {image.mode}; 8 bits a channel are needed")
        return image.size, image.mode


def _decode(pictures: Sequence[_Picture], width: int, height: int, mode: str) -> NDArray[np.uint8]:
    channels = 1 if mode == "L" else 3
    check_room(pictures[0].path.parent, len(pictures) * channels * height * width)
    images = np.empty((len(pictures), channels, height, width), np.uint8)
    for slot, picture in zip(images, pictures, strict=True):
        with _opened(picture.path) as image:
            fitted = image.convert(mode).resize((width, height), Image.Resampling.BILINEAR)
            slot[:] = np.asarray(fitted).reshape(height, width, channels).transpose(2, 0, 1)
    return images


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with Image.open(path) as image:
            yield image
    except DataError:
        raise
    except Exception as error:  # decoders of damaged files raise almost any exception
        raise damaged(path, f"is no readable image ({error})") from error
