"""Shakespeare's plays by speaking role: predict the next character from the 80 before it.

Two formats are supported: one JSON object per line and role (`id`, `speeches`), and LEAF's JSON files (`x` has texts of
80 characters, `y` the next character).

The vocabulary has 80 tokens: padding, unknown, and 78 characters. In the first format, the first 80 % of a role's lines
are train and the rest test; roles with fewer than two lines are left out. The 4.3 million characters would give as many
overlapping windows, so one window is taken every `STRIDE` characters, and none crosses from train to test. A text that
is too short gives one window, padded on the left, whose target is its last character.
"""

from __future__ import annotations

import logging
import string
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import leaf
from fedrelay.data.loaders.file_checks import damaged, read_text, renumbered

LENGTH = 80
STRIDE = 10
TRAIN_SHARE = 0.8
PADDING, UNKNOWN = 0, 1
CHARACTERS = "\n !\"&'(),-.:;?[]" + string.digits + string.ascii_letters
CLASSES = len(CHARACTERS) + 2

_TOKEN_OF = np.full(128, UNKNOWN, np.uint8)
_TOKEN_OF[[ord(character) for character in CHARACTERS]] = np.arange(2, CLASSES)

_log = logging.getLogger(__name__)

Windows = NDArray[np.uint8]
"""Rows of `LENGTH` tokens and the next token."""


def recognise(location: Path) -> Path | None:
    """A `.jsonl[.gz]` file, or a folder with `shakespeare*.jsonl[.gz]` or LEAF's `train` and `test`."""
    if location.is_file():
        return location if location.name.endswith((".jsonl", ".jsonl.gz")) else None
    by_role = sorted([*location.glob("shakespeare*.jsonl"), *location.glob("shakespeare*.jsonl.gz")])
    return next(iter(by_role), None) or leaf.recognise(location)


def load(location: Path, stride: int = STRIDE) -> Dataset:
    """Tokens `[n, 80]` and the next token; roles are the natural clients. LEAF files already have windows."""
    if location.is_file():
        train, test = _from_roles(location, stride)
    else:
        train, test = (_from_leaf(location / part) for part in ("train", "test"))
    for windows, part in ((train, "train"), (test, "test")):
        if not any(map(len, windows.values())):
            raise damaged(location, f"has no {part} samples")
    roles = np.repeat(list(train), [len(windows) for windows in train.values()])
    return Dataset(
        "shakespeare", "tokens", *_samples(train), *_samples(test), classes=CLASSES, client_train=renumbered(roles)
    )


def encode(text: str) -> NDArray[np.uint8]:
    """One token per character."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _TOKEN_OF[np.minimum(points, len(_TOKEN_OF) - 1)]


def windows_of(text: str, stride: int) -> Windows:
    """The windows of one text, one every `stride` characters."""
    if not text:
        return np.zeros((0, LENGTH + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(_padded(encode(text)), LENGTH + 1)[::stride]


def _padded(tokens: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.pad(tokens, (max(0, LENGTH + 1 - len(tokens)), 0), constant_values=PADDING)


def _from_roles(path: Path, stride: int) -> tuple[dict[str, Windows], dict[str, Windows]]:
    train, test = {}, {}
    skipped = 0
    for number, record in enumerate(read_text(path).split("\n"), start=1):
        if not record.strip():
            continue
        role, lines = _role(path, number, record)
        if role in train:
            raise damaged(path, f"line {number}: duplicate role {role}")
        if len(lines) < 2:
            skipped += 1
            continue
        split = int(TRAIN_SHARE * len(lines))
        train[role] = windows_of("\n".join(lines[:split]), stride)
        test[role] = windows_of("\n".join(lines[split:]), stride)
    _log.info("shakespeare: left out %d roles with fewer than two lines", skipped)
    return train, test


def _role(path: Path, number: int, record: str) -> tuple[str, list[str]]:
    value = leaf.parse_json(path, record)
    speeches = value.get("speeches") if isinstance(value, dict) else None
    if not isinstance(speeches, list) or not all(isinstance(speech, str) for speech in speeches):
        raise damaged(path, f"line {number} is not a role; it needs `id` and `speeches`, a list of texts")
    lines = "\n".join(speeches).split("\n")
    if value.get("n_lines", len(lines)) != len(lines):
        raise damaged(path, f"line {number} has {len(lines)} lines of text but claims {value['n_lines']}")
    return str(value.get("id", number)), lines


def _from_leaf(folder: Path) -> dict[str, Windows]:
    windows: dict[str, Windows] = {}
    for user in leaf.read_users(folder):
        rows = np.stack([_leaf_window(user, x, y) for x, y in zip(user.x, user.y, strict=True)])
        windows[user.name] = np.concatenate([windows[user.name], rows]) if user.name in windows else rows
    return windows


def _leaf_window(user: leaf.LeafUser, text: Any, following: Any) -> NDArray[np.uint8]:
    if not isinstance(text, str) or not isinstance(following, str):
        raise damaged(user.path, f"a sample of user {user.name} is not a text and its next character")
    if len(text) > LENGTH or len(following) != 1:
        lengths = f"{len(text)} characters and then {len(following)}"
        raise damaged(user.path, f"a sample of user {user.name} has {lengths}, not {LENGTH} and then 1")
    return _padded(encode(text + following))


def _samples(windows: dict[str, Windows]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rows = np.concatenate(list(windows.values()))
    return np.ascontiguousarray(rows[:, :LENGTH]), rows[:, LENGTH].astype(np.int64)
