"""Client state in the node's own folder: one file for each version that the server may still ask for."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from fedrelay.errors import EngineError
from fedrelay.files import make_folder, write_atomically

DAYS = 30
"""After this many days the state of a run that did not continue is removed."""

_DAY_SECONDS = 86_400
_RUN = re.compile(r"[0-9a-f]{16}")
_REMOVED = ".gone-"

Tensors = Mapping[str, Tensor]

log = logging.getLogger(__name__)


class ClientStateFiles:
    """The files of all runs, `RUN/VERSION.safetensors`."""

    def __init__(self, folder: Path, days: int = DAYS) -> None:
        self.folder, self.days = folder, days
        make_folder(folder, mode=0o700)
        folder.chmod(0o700)
        self.remove_old_runs()

    def get(self, run: str, version: int, merged_from: Sequence[int], additive: Collection[str]) -> Tensors:
        """A version of the state.

        Args:
            run: The id of the run.
            version: The version; 0 is the initial, empty state.
            merged_from: If the version merges several hops, the version they started from, then their versions.
            additive: Names of tensors whose changes add up in a merge. Of all others the last one is taken.
        """
        if version == 0:
            return {}
        path = self._path(run, version)
        if not path.is_file() and merged_from:
            start = self.get(run, merged_from[0], (), additive)
            merged: Tensors = {}
            for part in merged_from[1:]:  # one by one: together they may not fit into memory
                merged = _merge(start, merged, self.get(run, part, (), additive), additive)
            self.put(run, version, merged)
        try:
            return tensors_from_bytes(path.read_bytes())
        except (OSError, SafetensorError, ValueError):
            raise EngineError("the state of this client is lost: was the node's folder emptied?") from None

    def put(self, run: str, version: int, tensors: Tensors) -> None:
        self.run_folder(run)
        content = tensors_to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()})
        write_atomically(self._path(run, version), content, mode=0o600)

    def has(self, run: str, version: int) -> bool:
        return self._path(run, version).is_file()

    def run_folder(self, run: str) -> Path:
        """The folder of a run; created if it does not exist yet."""
        folder = self._path(run, 0).parent
        if not folder.is_dir():
            self.remove_old_runs()
            make_folder(folder, mode=0o700)
        return folder

    def remove_before(self, run: str, version: int) -> None:
        """Remove versions that the server will not ask for again."""
        folder = self._path(run, 0).parent
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.stem.isdecimal() and int(path.stem) < version:
                path.unlink(missing_ok=True)

    def remove_old_runs(self) -> None:
        """Remove runs that did not continue for `days` days.

        A folder is renamed first, so that a folder that is only half removed is never read.
        """
        for found in self.folder.iterdir():
            try:
                if found.is_symlink() or not found.is_dir():
                    continue
                if _RUN.fullmatch(found.name) and self.is_old(found):
                    found = found.rename(found.with_name(f"{_REMOVED}{found.name}"))
                if found.name.startswith(_REMOVED):
                    shutil.rmtree(found)
            except OSError as error:  # the next call tries again
                log.warning("%s: cannot be removed (%s)", found, error.strerror)

    def is_old(self, path: Path) -> bool:
        """Whether a file or folder has not changed for `days` days."""
        return time.time() - path.stat().st_mtime > self.days * _DAY_SECONDS

    def _path(self, run: str, version: int) -> Path:
        return self.folder / checked_run_id(run) / f"{version}.safetensors"


def checked_run_id(run: str) -> str:
    """The id of a run, which names files of a node.

    Raises:
        EngineError: It is none.
    """
    if not _RUN.fullmatch(run):
        raise EngineError("run must have 16 hexadecimal digits")
    return run


def _merge(start: Tensors, merged: Tensors, later: Tensors, additive: Collection[str]) -> Tensors:
    """The versions merged so far, with one more that began at `start` too."""
    if merged and merged.keys() != later.keys():
        raise EngineError("the state of this client belongs to different methods")
    found = dict(later)
    for name in found.keys() & set(additive):
        before = start[name] if name in start else torch.zeros_like(later[name])
        found[name] = merged.get(name, before) + (later[name] - before)
    return found
