"""What every node receives once, before its first request: the frozen parameters of the model.

The server first asks whether a node has them: it keeps them in its folder, also after the end of a run. A node that has
lost them says so in its reply to any request; then they are sent again.
"""

from __future__ import annotations

from fedrelay.engines.flower.messages import FROZEN, BadMessage, Message
from fedrelay.models.frozen_parameter_serialization import Bytes, frozen_sha256


class FrozenParameterDelivery:
    """Which nodes have the frozen parameters; without any, all nodes are ready."""

    def __init__(self, frozen: Bytes | None = None) -> None:
        self.frozen = frozen
        self.digest = "" if frozen is None else frozen_sha256(frozen)
        self.ready: set[int] = set()
        self.missing: set[int] = set()
        self.sent: set[int] = set()
        """Clients that have received them and have not replied to any other request since."""

    def request(self, client: int) -> Message | None:
        """The request that comes before all others of this client; None if it is ready."""
        if self.frozen is None or client in self.ready:
            return None
        header = {"kind": "setup", FROZEN: self.digest}
        if client not in self.missing:
            return Message(header)
        self.sent.add(client)
        return Message(header, {FROZEN: self.frozen})

    def take_reply(self, client: int, reply: Message) -> bool:
        """Note what a reply says about the setup.

        Returns:
            Whether the reply was about the setup, so that the client's own request is still to be sent.

        Raises:
            BadMessage: The reply is not about the setup, but should be, or the node lost what it has just received.
        """
        if self.frozen is None:
            return False
        missing = reply.header.get("missing") if reply.header.get("kind") == "setup" else None
        if client in self.ready and missing is not True:
            self.sent.discard(client)
            return False
        if not isinstance(missing, bool):
            raise BadMessage("it does not say whether it has the frozen parameters")
        if not missing:
            self.missing.discard(client)
            self.ready.add(client)
            return True
        self.ready.discard(client)
        self.missing.add(client)
        if client in self.sent:
            self.sent.discard(client)
            raise BadMessage("it did not keep the frozen parameters")
        return True
