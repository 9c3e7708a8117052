"""What clients keep from one turn to the next, keyed by client: in memory first, on disk beyond a budget.

It grows with the clients visited, not with all clients, and does not care in which group or route a client is. Files
carry the round in which they were written. `commit` makes everything up to a round durable, `restore` goes back to what
a checkpoint names; so a run that was killed goes on with what its clients knew at the last checkpoint.
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
from fedrelay.files import read_whole, write_atomically

BUDGET = 2 << 30
"""Bytes kept in memory."""

_NAME = re.compile(r"(\d+)-(\d+)-([0-9a-f]{16})\.safetensors")


class ClientStateStore:
    """The tensors of all clients that were visited."""

    def __init__(self, folder: Path | None = None, budget: int = BUDGET, *, run: str | None = None) -> None:
        self.folder = folder
        self.run = run or secrets.token_hex(8)
        """What the run is called, wherever its clients keep something for it."""
        self.budget = budget
        self.round = 0
        self.memory: OrderedDict[int, Mapping[str, Tensor]] = OrderedDict()
        self.bytes = 0
        self.changed: set[int] = set()
        """Clients whose newest tensors are only in memory."""
        self.files: dict[int, Path] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def get(self, client: int) -> Mapping[str, Tensor]:
        """What a client kept; nothing if it was never visited."""
        if client in self.memory:
            self.memory.move_to_end(client)
            return self.memory[client]
        if client in self.files:
            tensors = _read(self.files[client])
            self._hold(client, tensors)
            return tensors
        return {}

    def put(self, round: int, client: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep what a client has after its turns of a round."""
        self.round = round
        self.changed.add(client)
        self._hold(client, tensors)

    def commit(self, round: int) -> None:
        """Make everything durable."""
        if self.folder is None:
            return
        self.round = round
        for client in sorted(self.changed):
            self._write(client)

    def forget_before(self, round: int) -> None:
        """Remove what `commit` has replaced, once the checkpoint of `round` is in place."""
        if self.folder is not None and self.folder.is_dir():
            newest = set(self.files.values())
            for path in self.folder.iterdir():
                found = _NAME.fullmatch(path.name)
                if found and int(found[2]) <= round and path not in newest:
                    path.unlink()

    @property
    def names(self) -> list[str]:
        """The files that were committed; a checkpoint says which belong to it."""
        return sorted(path.name for path in self.files.values()) if self.folder is not None else []

    def restore(self, names: Sequence[str]) -> None:
        """Go back to the files that a checkpoint names; what else there is was written later and is removed."""
        if self.folder is None:
            return
        if self.folder.is_symlink():
            raise RunFolderError(f"{self.folder}: is a link; what clients keep must lie in the run folder itself")
        present = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        for name in names:
            found = _NAME.fullmatch(name)
            if found is None or name not in present:
                raise RunFolderError(f"{self.folder / name}: is missing; the run is damaged")
            self.files[int(found[1])] = self.folder / name
        for name in present - set(names):
            try:
                (self.folder / name).unlink()
            except OSError as error:
                raise RunFolderError(f"{self.folder / name}: does not belong here ({error.strerror})") from None

    def clear(self) -> None:
        """Forget everybody, as at the beginning of another phase; files go with the next commit."""
        self.memory.clear()
        self.changed.clear()
        self.files.clear()
        self.bytes = 0

    def close(self) -> None:
        """Remove what was spilled to a folder of its own."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _hold(self, client: int, tensors: Mapping[str, Tensor]) -> None:
        self.bytes += _size(tensors) - _size(self.memory.pop(client, {}))
        self.memory[client] = tensors
        while self.bytes > self.budget and len(self.memory) > 1:
            oldest = next(iter(self.memory))
            if oldest in self.changed:
                self._write(oldest)
            self.bytes -= _size(self.memory.pop(oldest))

    def _write(self, client: int) -> None:
        content = tensors_to_bytes(dict(self.memory[client]))
        checksum = hashlib.sha256(content).hexdigest()[:16]
        path = self._place() / f"{client}-{self.round}-{checksum}.safetensors"
        write_atomically(path, content)
        before = self.files.get(client)
        # What a checkpoint may still refer to stays until the next one is in place.
        if before is not None and before != path and (self._temporary or _round_of(before) == self.round):
            before.unlink(missing_ok=True)
        self.files[client] = path
        self.changed.discard(client)

    def _place(self) -> Path:
        if self.folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fedrelay-")
            self.folder = Path(self._temporary.name)
        self.folder.mkdir(exist_ok=True)
        return self.folder


def _read(path: Path) -> Mapping[str, Tensor]:
    found = _NAME.fullmatch(path.name)
    assert found is not None
    try:
        content = read_whole(path)
        if hashlib.sha256(content).hexdigest()[:16] != found[3]:
            raise RunFolderError(f"{path}: is damaged (its checksum differs from its name)")
        return tensors_from_bytes(content)
    except (OSError, SafetensorError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None


def _round_of(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    assert found is not None
    return int(found[2])


def _size(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
