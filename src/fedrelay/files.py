"""Write files so that they survive a crash or a loss of power, and read regular files only.

A disk may write what is not flushed in any order, or never. So content is flushed before a file gets its name, and a
folder is flushed after a name in it has changed.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

from fedrelay.errors import RunFolderError
from fedrelay.file_lock import NO_FOLLOW

BINARY = getattr(os, "O_BINARY", 0)
"""On Windows, files opened without it would get other line ends, and so other checksums."""


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
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written ({error.strerror})") from None


class LineFile:
    """A file that lines are appended to, each with one write, so that none is ever there in part.

    Args:
        path: The file; it is created if it does not exist.
        mode: Who may read and write a new file, before the umask.

    Raises:
        RunFolderError: The file cannot be written.
    """

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        self.path = path
        try:
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW | BINARY, mode)
        except OSError as error:
            raise self._error(error.strerror) from None

    def append(self, content: bytes) -> None:
        """Append whole lines."""
        try:
            written = os.write(self._handle, content)
            if written < len(content):
                os.ftruncate(self._handle, os.fstat(self._handle).st_size - written)
        except OSError as error:
            raise self._error(error.strerror) from None
        if written < len(content):
            raise self._error("the disk is full")

    def flush(self) -> None:
        """Flush all lines to disk; who needs the name of a new file on disk flushes its folder too."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise self._error(error.strerror) from None

    def close(self) -> None:
        os.close(self._handle)

    def _error(self, reason: str | None) -> RunFolderError:
        return RunFolderError(f"{self.path}: cannot be written ({reason})")


def drop_incomplete_line(path: Path) -> bool:
    """Cut a last line that a loss of power has left in part. Returns whether there was one."""
    content = read_regular_file(path) if path.exists() else b""
    end = content.rfind(b"\n") + 1
    if end == len(content):
        return False
    os.truncate(path, end)
    return True


def flush_folder(path: Path) -> None:
    """Flush the names in a folder to disk: new ones, changed ones and removed ones. Windows has no such call."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Create a folder and its parents, if they do not exist, and flush their names to disk.

    Args:
        path: The folder.
        mode: Who may use it, before the umask; its parents have the usual mode.

    Raises:
        RunFolderError: The folder cannot be created.
    """
    try:
        new = [each for each in path.parents if not each.exists()]
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        for each in (path, *new):
            if os.access(each.parent, os.R_OK):  # a folder that may only be written to cannot be opened
                flush_folder(each.parent)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be created ({error.strerror})") from None


def mark_as_latest(path: Path, files: Iterable[Path]) -> None:
    """Give a file a later time than all of `files`, even if the clock was set back since they were written."""
    latest = max((each.stat().st_mtime_ns for each in files if each != path), default=0)
    now = max(time.time_ns(), latest + 1)
    os.utime(path, ns=(now, now))


def keep_latest(files: Iterable[Path], count: int) -> None:
    """Delete all files but the `count` latest ones."""
    for old in sorted(files, key=lambda each: each.stat().st_mtime_ns)[:-count]:
        old.unlink(missing_ok=True)


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
