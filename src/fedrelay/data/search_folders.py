"""The folders in which data sets are searched for. No data is read."""

from __future__ import annotations

import os
from pathlib import Path

from fedrelay.files import expand_home

ROOT_VARIABLE = "FEDRELAY_DATA"
"""The environment variable with the folder of all data sets, one sub-folder each."""


def search_folders(name: str, *, unique_files: bool = True) -> list[Path]:
    """The folders in which the data set `name` is searched for, in order.

    `$FEDRELAY_DATA` itself is searched too if its files have names that no other data set uses (`unique_files`), or if
    the folder has the name of the data set. MNIST and Fashion-MNIST, for example, share their file names.
    """
    folders = []
    if root := _folder_from(ROOT_VARIABLE):
        folders.append(root / name)
        if unique_files or root.name == name:
            folders.append(root)
    cache = _folder_from("XDG_CACHE_HOME") or expand_home(Path("~/.cache"))
    return [*folders, cache / "fedrelay" / name]


def plain_or_gzip(folder: Path, name: str) -> Path | None:
    """The file `name` or `name.gz` in `folder`, if there is one."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _folder_from(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return expand_home(Path(value)) if value else None
