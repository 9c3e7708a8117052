"""Write files atomically, and read regular files only."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fedrelay.errors import RunFolderError


def write_atomically(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write to a temporary file, flush it to disk, then rename it, so that no reader sees half a file.

    Args:
        path: The file.
        content: What it is to hold.
        mode: Who may read and write it, before the umask.

    Raises:
        RunFolderError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # it may be a symbolic link
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
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
    """Create a folder and its parents, if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be created ({error.strerror})") from None


def read_regular_file(path: Path) -> bytes:
    """The content of a file. Pipes and devices raise an `OSError`, because reading them may never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file")
    return path.read_bytes()


def expand_home(path: Path) -> Path:
    """Expand `~`; return the path unchanged if the home folder is unknown."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
