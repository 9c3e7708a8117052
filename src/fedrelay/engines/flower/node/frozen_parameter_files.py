"""Frozen parameters in the node's own folder: each model's are sent once and used in all its hops."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np

from fedrelay.engines.flower.messages import Array, BadMessage
from fedrelay.errors import EngineError
from fedrelay.files import keep_latest, make_folder, mark_as_latest, write_atomically
from fedrelay.models.frozen_parameter_serialization import Bytes, frozen_sha256

KEPT = 3
"""Models whose frozen parameters are kept; those used last stay."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger(__name__)


class MissingFrozenParameters(EngineError):
    """This node does not have the frozen parameters of a model; the server sends them when it hears of it."""


class FrozenParameterFiles:
    """Files named by the SHA-256 of their content."""

    def __init__(self, folder: Path, largest: int) -> None:
        self.folder, self.largest = folder, largest
        make_folder(folder, mode=0o700)

    def has(self, digest: str) -> bool:
        return self._path(digest).is_file()

    def get(self, digest: str) -> Bytes:
        """Frozen parameters.

        Raises:
            MissingFrozenParameters: They are not here, or their file is damaged.
        """
        path = self._path(digest)
        try:
            content = np.frombuffer(path.read_bytes(), np.uint8)
            mark_as_latest(path, self._files())
        except OSError:
            raise MissingFrozenParameters("the frozen parameters of the model are not at this node") from None
        if frozen_sha256(content) != digest:
            log.warning("%s: is damaged; the server is asked to send it again", path)
            path.unlink(missing_ok=True)
            raise MissingFrozenParameters("the frozen parameters of the model are damaged at this node")
        return content

    def put(self, digest: str, content: Array) -> None:
        """Keep frozen parameters that the server has sent; those that were not used for longest make room."""
        path = self._path(digest)
        if content.nbytes > self.largest:
            size = f"{content.nbytes:,} bytes, this node accepts at most {self.largest:,}"
            raise EngineError(f"the frozen parameters of the model have {size}")
        if content.dtype != np.uint8 or content.ndim != 1 or frozen_sha256(np.ascontiguousarray(content)) != digest:
            raise BadMessage("its frozen parameters are not those it announces")
        write_atomically(path, content.tobytes())
        mark_as_latest(path, self._files())
        keep_latest(self._files(), KEPT)

    def _files(self) -> list[Path]:
        return [each for each in self.folder.iterdir() if _DIGEST.fullmatch(each.name)]

    def _path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BadMessage("frozen must be a SHA-256")
        return self.folder / digest
