"""Waiting for messages: the SuperLink says when there is a new one."""

from __future__ import annotations

from typing import Any

import httpx
from google.protobuf.message import Message as ProtobufMessage
from google.protobuf.wrappers_pb2 import UInt64Value

GRACE = 10.0
"""Seconds that an answer may take beyond those that were asked for; a link that is longer silent is dead."""

UNKNOWN_PATH = (404, 405)
"""What a SuperLink answers that does not tell who waits."""


class MessageWaiter:
    """Waits for the messages of one receiver. Where it is not told of one, there is none to fetch.

    Args:
        stub: The client of the SuperLink.
        path: The path at which the receiver waits.
    """

    def __init__(self, stub: Any, path: str) -> None:
        self.stub, self.path = stub, path
        self.known = 0
        """How many messages the SuperLink has told of."""
        self.is_supported = True
        """Whether the SuperLink tells who waits, as far as we know."""

    def wait(self, receiver: ProtobufMessage, seconds: float) -> int:
        """Wait for a message, for at most these seconds. Returns how many may be new since the last call.

        Args:
            receiver: What the receiver would send to fetch messages; it shows who waits.
            seconds: Zero asks without waiting.
        """
        try:
            told = self.stub._unary_unary(
                path=f"{self.path}?known={self.known}&seconds={seconds:g}",
                rpc_method=self.path,
                request=receiver,
                response_type=UInt64Value,
                timeout=seconds + GRACE,
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in UNKNOWN_PATH:
                raise
            self.is_supported = False
            return 0
        known_before, self.known = self.known, int(told.value)
        return max(self.known - known_before, int(self.known != known_before))  # a new SuperLink counts from one
