"""Locks on files that hold between processes and end with the process, on Linux, macOS and Windows.

POSIX systems have `fcntl`, whose locks can be tested without being taken. Windows has `msvcrt`, with which a test takes
the lock for a moment; so whoever wants it there tries again a few times.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Do not open symbolic links, where the system can refuse them."""

_LINUX, _BSD = "hhqqi4x", "qqihh"
"""The layouts of `struct flock`: kind, whence, start, length, owner; on macOS and BSD the first two come last."""

_TRIES = 20
_PAUSE = 0.02


def lock_file(path: Path, *, mode: int = 0o644, wait: bool = False) -> int:
    """Open a file, create it if it does not exist, and lock it against other processes.

    Args:
        path: The file.
        mode: Who may read and write it, before the umask.
        wait: Wait until the lock is free.

    Returns:
        The handle; the lock is released when it is closed, or when this process ends.

    Raises:
        BlockingIOError: Another process has the lock.
        OSError: The file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, mode)
    try:
        if fcntl is not None:
            fcntl.lockf(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_on_windows(handle, wait)
    except BaseException:
        os.close(handle)
        raise
    return handle


def is_locked(path: Path) -> bool:
    """Whether another process has locked the file. False if there is no such file."""
    try:
        handle = os.open(path, (os.O_RDONLY if fcntl is not None else os.O_RDWR) | NO_FOLLOW)
    except OSError:
        return False
    try:
        if fcntl is None:
            return _is_locked_on_windows(handle)
        if sys.platform == "linux":
            layout, wanted, kind = _LINUX, (fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0), 0
        else:
            layout, wanted, kind = _BSD, (0, 0, 0, fcntl.F_RDLCK, os.SEEK_SET), 3
        found = struct.unpack(layout, fcntl.fcntl(handle, fcntl.F_GETLK, struct.pack(layout, *wanted)))
        return bool(found[kind] != fcntl.F_UNLCK)
    finally:
        os.close(handle)


def _lock_on_windows(handle: int, wait: bool) -> None:
    import msvcrt

    tries = 0
    while True:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return
        except OSError:
            tries += 1
            if tries >= _TRIES and not wait:
                raise BlockingIOError(f"{handle}: is locked by another process") from None
            time.sleep(_PAUSE)


def _is_locked_on_windows(handle: int) -> bool:
    import msvcrt

    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return True
    os.lseek(handle, 0, os.SEEK_SET)
    msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
    return False
