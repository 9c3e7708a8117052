"""Checkpoints inside a hop: a node that dies while it trains goes on where it was, with the same bits.

One file for each run holds the hop that is being trained, and the digest of its request. It is replaced by a later
checkpoint, and removed when the reply has left or the server asks for another hop.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.files import write_atomically
from fedrelay.local.hop_watcher import HopProgress, Snapshot

UNFINISHED = "unfinished-hop.pt"
"""The file, beside the client state of its run."""

PRIVATE = 0o600

EPOCH_APART, APART, SLOWDOWN = 30.0, 600.0, 20.0
"""By default: seconds between checkpoints at ends of epochs, and at other steps; and how many times as long as a
checkpoint takes to write, training goes on before the next."""

AS_NEEDED, NEVER = "auto", "off"
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}

log = logging.getLogger(__name__)


class CheckpointRule(NamedTuple):
    """When a hop is saved."""

    epochs: int | None = None
    """After so many epochs."""

    seconds: float | None = None
    """After so many seconds. With neither: at ends of epochs and now and then, but not too often."""

    enabled: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """The rule that an owner writes: `auto`, `off`, `1epoch`, `10min`, `30s`.

        Raises:
            SpecError: It is none.
        """
        if text in (AS_NEEDED, NEVER):
            return cls(enabled=text == AS_NEEDED)
        found = re.fullmatch(r"(\d{1,6})\s*(epochs?|s|min|h)", text.strip())
        if found is None or not (count := int(found[1])):
            raise SpecError(f"--checkpoint-every: expects 1epoch, 10min, 30s, 2h, auto or off; got {text!r}")
        return cls(epochs=count) if found[2].startswith("epoch") else cls(seconds=count * _SECONDS[found[2]])

    def is_due(self, progress: HopProgress, since_last: float, last_took: float) -> bool:
        """Whether to save the hop now.

        Args:
            progress: How far it is.
            since_last: Seconds since the last checkpoint, or since it began.
            last_took: Seconds that the last checkpoint took to write.
        """
        if not self.enabled:
            return False
        if self.epochs is not None:
            return progress.ends_epoch and progress.epochs_done % self.epochs == 0
        if self.seconds is not None:
            return since_last >= self.seconds
        return since_last >= max(EPOCH_APART if progress.ends_epoch else APART, SLOWDOWN * last_took)


SAVE_AS_NEEDED = CheckpointRule()


@dataclass
class HopCheckpoint:
    """The checkpoint of the hop that is being trained. It is the watcher of that hop."""

    path: Path
    request: str
    """A digest of everything that the hop depends on."""

    nonce: str
    """The random text of the request. It is the same only if the SuperLink hands out the very same one again."""

    place: str
    """Round, route and number of the hop, for the log."""

    rule: CheckpointRule
    say: Callable[[str], None]
    """Shows a line to the owner."""

    on_step: Callable[[HopProgress], None]
    """Is told of every step."""

    saved: bool = False
    """Whether the hop was saved: then it is a long one."""

    _last: float = 0.0
    _took: float = 0.0

    def start(self) -> Snapshot | None:
        """The snapshot of this hop; one of another hop is dropped."""
        self._last = time.monotonic()
        found = read_checkpoint(self.path)
        if found is None:
            return None
        if found["request"] != self.request:
            self.say(f"{self.place}: an unfinished hop ({found['place']}) does not fit this request; it is dropped")
            self.path.unlink(missing_ok=True)
            return None
        snapshot: Snapshot = found["snapshot"]
        self.saved = True
        self.say(f"{self.place}: goes on after step {snapshot['steps']:,}, where it was interrupted")
        return snapshot

    def after_step(self, progress: HopProgress, take_snapshot: Callable[[], Snapshot]) -> None:
        self.on_step(progress)
        now = time.monotonic()
        if not self.rule.is_due(progress, now - self._last, self._took):
            return
        content = io.BytesIO()
        torch.save(
            {"request": self.request, "nonce": self.nonce, "place": self.place, "snapshot": take_snapshot()}, content
        )
        try:
            write_atomically(self.path, content.getvalue(), mode=PRIVATE)
            self.saved, result = True, f"saved after step {progress.step:,} of {progress.steps:,}"
        except RunFolderError as error:  # such as a full disk; training goes on
            result = f"not saved: {error}"
        self._last = time.monotonic()
        self._took = self._last - now
        self.say(f"{self.place}: {result}")


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """What a file holds: the digest of a request, the place of the hop and its snapshot; None if it is of no use."""
    if not path.is_file():
        return None
    try:
        found = torch.load(path, weights_only=True)
        if isinstance(found, dict) and {"request", "nonce", "place", "snapshot"} <= found.keys():
            return found
    except Exception as error:  # a damaged file has many ways to fail
        log.warning("%s: cannot be read (%s); the hop begins anew", path, type(error).__name__)
    return None
