"""Signed replies: a node signs what it replies, and to which request.

TLS protects messages on the way to the SuperLink, but the SuperLink and every proxy that ends TLS can read and change
them. The key of a node is known to the server from `fedrelay key`, so a signature shows that a reply is the node's own
and belongs to this request. A changed request shows, too: the node signs the digest of the request that it received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedrelay.engines.flower.credentials import PrivateKey, PublicKey
from fedrelay.engines.flower.message_bytes import message_digest
from fedrelay.engines.flower.messages import SIGNATURE, Message, WrongSignature, text_field
from fedrelay.engines.flower.sealing import is_signed_by, sign

ANSWERED = "answered_sha256"
"""The field of the header with the digest of the request that is answered."""

REPLY_PURPOSE = "reply"
"""What the signatures of replies are for."""


def signed_reply(key: PrivateKey, request: Message, reply: Message) -> Message:
    """The reply to a request with a signature."""
    reply = replace(reply, header={**reply.header, ANSWERED: message_digest(request)})
    signature = sign(key, REPLY_PURPOSE, message_digest(reply).encode())
    return replace(reply, header={**reply.header, SIGNATURE: signature.hex()})


@dataclass(frozen=True)
class ReplyVerifier:
    """Checks the signatures of replies."""

    keys: Mapping[str, PublicKey]
    """Name of a node → its key."""

    def check(self, node: str, request_digest: str, reply: Message) -> None:
        """Raise `WrongSignature` unless the node signed this reply to this request.

        Args:
            node: The name of the node.
            request_digest: The digest of the request that was sent to it.
            reply: What arrived.
        """
        try:
            signature = bytes.fromhex(text_field(reply.header, SIGNATURE))
        except ValueError:
            signature = b""
        if not signature:
            raise WrongSignature(f"unsigned reply: it does not come from node {node!r}, whose replies are signed")
        content = message_digest(reply).encode()
        if not is_signed_by(self.keys[node], REPLY_PURPOSE, content, signature):
            for other, key in self.keys.items():
                if is_signed_by(key, REPLY_PURPOSE, content, signature):
                    raise WrongSignature(
                        f"reply of another node: {other!r} signed it, not {node!r}; somebody between exchanged them"
                    )
            raise WrongSignature(
                f"altered reply: node {node!r} did not sign it; the SuperLink or a proxy changed it on the way"
            )
        if text_field(reply.header, ANSWERED) != request_digest:
            raise WrongSignature(
                f"reply to another request: node {node!r} signed it, but not for this request; the SuperLink or a "
                "proxy replayed or reordered replies, or changed the request"
            )
