"""Watching a hop while it is trained: how far it is, and everything that its remaining steps depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

Snapshot = dict[str, Any]
"""A hop after some of its steps, as plain data and tensors: model, optimiser, random numbers, terms, loss so far.

With the same request, a hop that goes on from there ends with the same bits.
"""


class HopProgress(NamedTuple):
    """How far a hop is."""

    step: int
    """Steps that are done."""

    steps: int
    steps_per_epoch: int

    @property
    def epochs_done(self) -> int:
        return self.step // self.steps_per_epoch

    @property
    def ends_epoch(self) -> bool:
        """Whether the last step was the last one of an epoch, or of the hop."""
        return self.step % self.steps_per_epoch == 0 or self.step == self.steps

    def __str__(self) -> str:
        epochs = -(-self.steps // self.steps_per_epoch)
        return f"epoch {min(self.epochs_done + 1, epochs)} of {epochs}, step {self.step:,} of {self.steps:,}"


class HopWatcher(Protocol):
    """Is told of every step of a hop."""

    def start(self) -> Snapshot | None:
        """Where to go on; None: at the start."""

    def after_step(self, progress: HopProgress, take_snapshot: Callable[[], Snapshot]) -> None:
        """Called after every step. A snapshot is valid until the next step; it is to be written, not kept."""
