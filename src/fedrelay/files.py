"""Files that are never half written."""

from __future__ import annotations

import os
from pathlib import Path

from fedrelay.errors import RunFolderError


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, make it durable, then put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
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
