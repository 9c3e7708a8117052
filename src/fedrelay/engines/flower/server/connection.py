"""What the relay needs of whoever carries its messages; `wire` does it with Flower, tests do it without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from fedrelay.engines.flower.messages import Message
from fedrelay.errors import EngineError


class Unreachable(EngineError):
    """Nobody carries messages any more: the SuperLink is gone, or does not know this run."""


class Connection(Protocol):
    """Carries parcels to nodes and back. Everything but `close` raises `Unreachable` when nobody carries them."""

    def present(self) -> set[str]:
        """The names of all nodes that can be reached now."""

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        """Send a parcel that is worth nothing after so many seconds: its number, or None if the node is not there."""

    def collect(self, numbers: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str | None]]:
        """Answers that have come to these parcels, none larger than so many bytes; a text says what went wrong.

        None says that an answer begins to come: there will be more of it within the seconds of its parcel, or a text.
        """

    def reconnect(self) -> None:
        """Wait until parcels can be sent again; those under way are lost. Raises `Unreachable` after a while."""

    def close(self, *, well: bool = True) -> None:
        """Say that the run is over."""


def no_answer(seconds: float) -> str:
    """What is said of a node that did not answer in time."""
    return f"no answer in {seconds:g} s"
