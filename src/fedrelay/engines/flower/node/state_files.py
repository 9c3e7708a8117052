"""What a client keeps from turn to turn, in the node's own folder: a file for each turn that may be asked for."""

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
from fedrelay.files import write_atomically

KEPT = 30
"""Days after which what was kept for a run that did not go on is removed."""

DAY = 86_400

log = logging.getLogger(__name__)

_RUN = re.compile(r"[0-9a-f]{16}")
_GONE = ".gone-"

Tensors = Mapping[str, Tensor]


class StateFiles:
    """The files of all runs, `RUN/TURN.safetensors`."""

    def __init__(self, folder: Path, days: int = KEPT) -> None:
        self.folder, self.days = folder, days
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.forget_runs()

    def get(self, run: str, turn: int, parts: Sequence[int], adding: Collection[str]) -> Tensors:
        """What a turn left behind; one that stands for several is put together: first what they set out from.

        Changes of the names in `adding` add up, of all others the last turn's stays.
        """
        if turn == 0:
            return {}
        path = self._path(run, turn)
        if not path.is_file() and parts:
            base = self.get(run, parts[0], (), adding)
            joined: Tensors = {}
            for part in parts[1:]:  # one by one: there may be more of them than memory
                joined = _joined(base, joined, self.get(run, part, (), adding), adding)
            self.put(run, turn, joined)
        try:
            return tensors_from_bytes(path.read_bytes())
        except (OSError, SafetensorError, ValueError):
            raise EngineError("what this client kept is lost: was its folder emptied?") from None

    def put(self, run: str, turn: int, tensors: Tensors) -> None:
        """Keep what a client has after a turn."""
        self.folder_of(run)
        content = tensors_to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()})
        write_atomically(self._path(run, turn), content)

    def has(self, run: str, turn: int) -> bool:
        """Whether a turn has left anything behind."""
        return self._path(run, turn).is_file()

    def folder_of(self, run: str) -> Path:
        """The folder of a run, made if it is not there yet."""
        folder = self._path(run, 0).parent
        if not folder.is_dir():
            self.forget_runs()
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def forget_before(self, run: str, turn: int) -> None:
        """Remove what nobody will ask for again."""
        folder = self._path(run, 0).parent
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.stem.isdecimal() and int(path.stem) < turn:
                path.unlink(missing_ok=True)

    def forget_runs(self) -> None:
        """Remove what belongs to runs that nobody has gone on with for so many days.

        A folder gets another name first: what is half removed is never taken for what a client kept.
        """
        for found in self.folder.iterdir():
            try:
                if found.is_symlink() or not found.is_dir():
                    continue
                if _RUN.fullmatch(found.name) and time.time() - found.stat().st_mtime > self.days * DAY:
                    found = found.rename(found.with_name(f"{_GONE}{found.name}"))
                if found.name.startswith(_GONE):
                    shutil.rmtree(found)
            except OSError as error:  # it is tried again the next time
                log.warning("%s: cannot be removed (%s)", found, error.strerror)

    def _path(self, run: str, turn: int) -> Path:
        if not _RUN.fullmatch(run):
            raise EngineError("the name of the run is none")
        return self.folder / run / f"{turn}.safetensors"


def _joined(base: Tensors, joined: Tensors, later: Tensors, adding: Collection[str]) -> Tensors:
    """What was joined so far, with a turn that set out from `base` as well."""
    if joined and joined.keys() != later.keys():
        raise EngineError("what this client kept belongs to different methods")
    found = dict(later)
    for name in found.keys() & set(adding):
        start = base[name] if name in base else torch.zeros_like(later[name])
        found[name] = joined.get(name, start) + (later[name] - start)
    return found
