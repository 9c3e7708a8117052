"""Files that are never half written, and read only where that comes to an end."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fedrelay.errors import RunFolderError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, make it durable, then put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # it may be a link that leads elsewhere
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written ({error.strerror})") from None


def make_folder(path: Path) -> None:
    """See to it that a folder is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be created ({error.strerror})") from None


def read_whole(path: Path) -> bytes:
    """All bytes of a file; an `OSError` where it is a pipe or a device, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return path.read_bytes()


def home_written_out(path: Path) -> Path:
    """The path without `~`; as it is where nobody has that home."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
