"""The client states, keyed by client: in memory first, on disk beyond a budget.

The store grows with the clients that had a hop, not with all clients. File names contain the round in which they were
written. `commit` writes everything up to a round to disk, `restore` returns to the files that a checkpoint names; so a
run that was killed continues with the client states of its last checkpoint.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from fedrelay.errors import RunFolderError
from fedrelay.files import read_regular_file, write_atomically

BUDGET = 2 << 30
"""Bytes kept in memory."""

_FILE_NAME = re.compile(r"(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")
"""Client, round, first digits of the content's SHA-256."""


class ClientStateStore:
    """The tensors of all clients that had a hop."""

    def __init__(self, folder: Path | None = None, budget: int = BUDGET, *, run_id: str | None = None) -> None:
        self.folder = folder
        self.run_id = run_id or secrets.token_hex(8)
        """Identifies the run at nodes that keep client states themselves."""
        self.budget = budget
        self.round = 0
        self.memory: OrderedDict[int, Mapping[str, Tensor]] = OrderedDict()
        self.bytes = 0
        self.changed: set[int] = set()
        """Clients whose newest tensors are only in memory."""
        self.files: dict[int, Path] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def get(self, client: int) -> Mapping[str, Tensor]:
        """A client's tensors; empty before its first hop."""
        if client in self.memory:
            self.memory.move_to_end(client)
            return self.memory[client]
        if client in self.files:
            tensors = _read(self.files[client])
            self._hold(client, tensors)
            return tensors
        return {}

    def put(self, round: int, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Set a client's tensors after its hops of a round."""
        self.round = round
        self.changed.add(client)
        self._hold(client, tensors)

    def commit(self, round: int) -> None:
        """Write all changes to the folder, if there is one."""
        if self.folder is None:
            return
        self.round = round
        for client in sorted(self.changed):
            self._write(client)

    def delete_outdated(self, round: int) -> None:
        """Delete the files that `commit` has replaced, once the checkpoint of `round` is written."""
        if self.folder is not None and self.folder.is_dir():
            newest = set(self.files.values())
            for path in self.folder.iterdir():
                found = _FILE_NAME.fullmatch(path.name)
                if found and int(found[2]) <= round and path not in newest:
                    path.unlink()

    @property
    def file_names(self) -> list[str]:
        """The committed files, to be named in a checkpoint."""
        return sorted(path.name for path in self.files.values()) if self.folder is not None else []

    def restore(self, names: Sequence[str]) -> None:
        """Return to the files that a checkpoint names. Other files were written later and are deleted.

        Raises:
            RunFolderError: A file is missing or damaged.
        """
        if self.folder is None:
            return
        if self.folder.is_symlink():
            raise RunFolderError(f"{self.folder}: is a link; client states must be inside the run folder")
        present = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        for name in names:
            found = _FILE_NAME.fullmatch(name)
            if found is None or name not in present:
                raise RunFolderError(f"{self.folder / name}: is missing; the run is damaged")
            _checked(self.folder / name)
            self.files[int(found[1])] = self.folder / name
        for name in present - set(names):
            try:
                (self.folder / name).unlink()
            except OSError as error:
                raise RunFolderError(f"{self.folder / name}: does not belong here ({error.strerror})") from None

    def clear(self) -> None:
        """Forget all clients, as at the start of another phase; files are deleted at the next commit."""
        self.memory.clear()
        self.changed.clear()
        self.files.clear()
        self.bytes = 0

    def close(self) -> None:
        """Delete the temporary folder, if one was used."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _hold(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        self.bytes += _byte_size(tensors) - _byte_size(self.memory.pop(client, {}))
        self.memory[client] = tensors
        while self.bytes > self.budget and len(self.memory) > 1:
            oldest = next(iter(self.memory))
            if oldest in self.changed:
                self._write(oldest)
            self.bytes -= _byte_size(self.memory.pop(oldest))

    def _write(self, client: int) -> None:
        if self.folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fedrelay-")
            self.folder = Path(self._temporary.name)
        self.folder.mkdir(exist_ok=True)
        content = tensors_to_bytes(dict(self.memory[client]))
        path = self.folder / f"{client}-{self.round}-{_checksum(content)}.safetensors"
        write_atomically(path, content)
        before = self.files.get(client)
        # A file that a checkpoint may still refer to stays until the next checkpoint is written.
        if before is not None and before != path and (self._temporary or _parse(before)[2] == str(self.round)):
            before.unlink(missing_ok=True)
        self.files[client] = path
        self.changed.discard(client)


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        return tensors_from_bytes(_checked(path))
    except (SafetensorError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None


def _checked(path: Path) -> bytes:
    """The content of a file, if it is what was written."""
    try:
        content = read_regular_file(path)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None
    if _checksum(content) != _parse(path)[3]:
        raise RunFolderError(f"{path}: is damaged (its checksum differs from its name)")
    return content


def _parse(path: Path) -> re.Match[str]:
    found = _FILE_NAME.fullmatch(path.name)
    assert found is not None
    return found


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _byte_size(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
