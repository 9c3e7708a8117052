"""What the server needs of a connection to its nodes. `wire` provides it with Flower, tests without a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fedrelay.errors import EngineError

if TYPE_CHECKING:  # brings PyTorch, which a SuperLink does not need
    from fedrelay.engines.flower.messages import Message


class SuperLinkUnreachable(EngineError):
    """The SuperLink does not answer, or no longer knows this run."""


class SignOfLife(NamedTuple):
    """What a node said while it was training."""

    age: float
    """Seconds since then."""

    text: str


class NodeLost(str):
    """Why there is no reply: the node has gone, and its request with it. It may come back."""


class Connection(Protocol):
    """Sends requests to nodes and receives replies.

    All methods except `wait_for_replies` and `close` raise `SuperLinkUnreachable`.
    """

    def online(self) -> set[str]:
        """The names of the nodes that are online."""

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        """Send a request that expires after `seconds`, unless it is for a hop, which may take any time.

        Returns its id, or None if the node is offline.
        """

    def receive(self, ids: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str | None]]:
        """Replies to these requests that have arrived, each of at most `largest` bytes.

        A string says why there is no good reply, in words of the connection's own: what others say without a signature
        is not repeated. None says that a reply has begun to arrive; the rest, or a string,
        follows within the seconds of its request.
        """

    def signs_of_life(self) -> Mapping[str, SignOfLife]:
        """Node → what it said last about a hop that it trains, for nodes that have said something."""

    def wait_for_replies(self, pause: float) -> None:
        """Wait until replies may have arrived, but not for long: a second, or `pause` seconds where nobody can tell."""

    def reconnect(self) -> None:
        """Wait until requests can be sent again. Requests in flight are lost."""

    def close(self) -> None:
        """End the run at the SuperLink."""


def no_reply(seconds: float) -> str:
    """The reason given for a node that did not reply in time."""
    return f"no reply in {seconds:g} s"
