"""Signed requests: the server signs what it asks of a node, for this node alone and for a limited time.

Who carries messages (the SuperLink, a proxy that ends TLS) could otherwise ask nodes on its own, read the replies and
drop them. The key `requests.key` stays with `fedrelay run`; a SuperLink does not need it. Nodes know it by a
certificate that comes with each request, and that the authority whose `ca.pem` owners hold has signed for this purpose
only: the certificate of the server's TLS does not pass.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fedrelay.engines.flower.credentials import (
    PrivateKey,
    PublicKey,
    public_text,
    requests_key_of,
)
from fedrelay.engines.flower.message_bytes import message_digest
from fedrelay.engines.flower.messages import (
    CERTIFICATE,
    EXPIRES,
    NONCE,
    RECEIVER,
    SIGNATURE,
    Message,
    WrongSignature,
    float_field,
    text_field,
)
from fedrelay.engines.flower.sealing import is_signed_by, sign
from fedrelay.errors import SpecError

CLOCK_SLACK = 300.0
"""Seconds by which the clocks of server and node may disagree, as for the SuperLink."""

_PURPOSE = "request"


@dataclass(frozen=True)
class RequestSigner:
    """Signs the requests of a server."""

    key: PrivateKey
    certificate: str
    """The certificate of the key, as PEM."""

    nodes: Mapping[str, PublicKey]
    """Name of a node → its key."""

    def __call__(self, node: str, request: Message, seconds: float) -> Message:
        """A request that only this node may answer, within `seconds`."""
        fields = {RECEIVER: _digest(self.nodes[node]), EXPIRES: time.time() + seconds}
        request = replace(request, header={**request.header, **fields})
        signature = sign(self.key, _PURPOSE, message_digest(request).encode()).hex()
        return replace(request, header={**request.header, CERTIFICATE: self.certificate, SIGNATURE: signature})


@dataclass
class RequestVerifier:
    """Checks at a node that requests are the server's own, and that each is answered once."""

    authority: bytes
    """The certificates that the owner trusts, as PEM."""

    own: PublicKey
    answered: dict[str, float] = field(default_factory=dict)
    """The random number of each request → when it expires."""

    def check(self, request: Message, has_begun: Callable[[Message], bool] = lambda request: False) -> None:
        """Raise `WrongSignature` unless the server made this request for this node, and it comes for the first time.

        Args:
            request: The request.
            has_begun: Whether the node was at work on it before it was interrupted: then it may come late.
        """
        header = request.header
        try:
            signature = bytes.fromhex(text_field(header, SIGNATURE))
        except ValueError:
            signature = b""
        if not signature or not isinstance(header.get(CERTIFICATE), str):
            raise WrongSignature(
                "unsigned request: the SuperLink or a proxy made it, or `fedrelay run` is of an earlier version"
            )
        try:
            key = requests_key_of(header[CERTIFICATE].encode(), self.authority)
        except SpecError as error:
            raise WrongSignature(f"request with a wrong certificate: {error}") from None
        except Exception as error:  # nothing that others send may end the node
            raise WrongSignature(f"request with a wrong certificate: it is damaged ({type(error).__name__})") from None
        if not is_signed_by(key, _PURPOSE, message_digest(request).encode(), signature):
            raise WrongSignature("altered request: the server did not sign it; somebody changed it on the way")
        if text_field(header, RECEIVER) != _digest(self.own):
            raise WrongSignature("request for another node: somebody between sent it here")
        now, expires, nonce = time.time(), float_field(header, EXPIRES) + CLOCK_SLACK, text_field(header, NONCE)
        if now > expires and not has_begun(request):
            raise WrongSignature(
                f"late request: it expired {now - expires + CLOCK_SLACK:.0f} s ago; it was held back, or the clocks of "
                "server and node disagree"
            )
        while self.answered and next(iter(self.answered.values())) < now:
            del self.answered[next(iter(self.answered))]
        if nonce in self.answered:
            raise WrongSignature("repeated request: somebody between sent it again")
        self.answered[nonce] = expires


def _digest(key: PublicKey) -> str:
    return hashlib.sha256(public_text(key).encode()).hexdigest()
