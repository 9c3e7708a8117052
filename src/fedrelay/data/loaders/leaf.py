"""The JSON files of LEAF: folders `train` and `test`; each file has the samples of some users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.data.loaders.file_checks import damaged, read_text


@dataclass(frozen=True)
class LeafUser:
    """The samples of one user in one file."""

    path: Path
    name: str
    x: list[Any]
    y: list[Any]


def recognise(location: Path) -> Path | None:
    """A folder with JSON files in `train` and `test`, or its sub-folder `data`."""
    for folder in (location, location / "data"):
        if all(any((folder / part).glob("*.json")) for part in ("train", "test")):
            return folder
    return None


def read_users(folder: Path) -> Iterator[LeafUser]:
    """All users of one part, file by file; users without samples are skipped."""
    for path in sorted(folder.glob("*.json")):
        yield from (user for user in _users(path, parse_json(path, read_text(path))) if user.x)


def parse_json(path: Path, text: str) -> Any:
    """Parse a JSON text from `path`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"is not valid JSON ({error})") from error


def _users(path: Path, content: Any) -> list[LeafUser]:
    if not isinstance(content, dict) or not isinstance(content.get("user_data"), dict):
        raise damaged(path, "has no table `user_data`: not a LEAF file")
    names, data = content.get("users"), content["user_data"]
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(data):
        raise damaged(path, "its `users` do not match its `user_data`")
    users = [_user(path, str(name), data[str(name)]) for name in names]
    if content.get("num_samples", lengths := [len(user.x) for user in users]) != lengths:
        raise damaged(path, "its `num_samples` do not match its `user_data`")
    return users


def _user(path: Path, name: str, samples: Any) -> LeafUser:
    x, y = (samples.get(key) if isinstance(samples, dict) else None for key in "xy")
    if not isinstance(x, list) or not isinstance(y, list):
        raise damaged(path, f"user {name} has no lists `x` and `y`")
    if len(x) != len(y):
        raise damaged(path, f"user {name} has {len(x)} samples and {len(y)} labels")
    return LeafUser(path, name, x, y)
