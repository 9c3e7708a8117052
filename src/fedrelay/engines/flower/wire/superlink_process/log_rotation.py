"""The log of a SuperLink: a file that only its owner can read, and a few older ones of bounded size.

Every request is a line, so strangers could fill a disk otherwise. The process rotates its own output: nobody has to
read a pipe, and no line is lost.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

LARGEST = 10_000_000
"""Bytes after which a file is put aside."""

OLDER = 4
"""Older files that are kept, the newest as `NAME.1`."""

SECONDS = 5.0
"""Seconds between two looks at the size."""


def open_log(path: Path) -> int:
    """Open a file to add lines to it. Nobody but its owner can read it, even if others could before."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    if os.name == "posix":
        os.fchmod(handle, 0o600)
    return handle


def rotate(path: Path, largest: int = LARGEST, older: int = OLDER) -> None:
    """If the file is too large, put it aside, and let this process write its output and errors to a new one."""
    if path.stat().st_size <= largest:
        return
    names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, older + 1))]
    for newer, next_older in reversed(list(itertools.pairwise(names))):
        with suppress(FileNotFoundError):
            newer.replace(next_older)
    handle = open_log(path)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)


def keep_rotating(path: Path) -> None:
    """Rotate from now on, in a thread."""

    def look() -> None:
        while True:
            with suppress(OSError):  # such as a full disk; the next look may succeed
                rotate(path)
            time.sleep(SECONDS)

    threading.Thread(target=look, daemon=True).start()
