"""Sealed envelopes: what one node hands to another through a server that must not read it.

A node has an identity, the key of `fedrelay key`, and a sealing key that the identity has signed. An envelope is
encrypted for the receiver's sealing key (ephemeral X25519, HKDF-SHA256, ChaCha20-Poly1305) and then signed by the
sender's identity. Key, authentication and signature all depend on the place of the handover in the run, so an envelope
that is replayed, reordered or sent to another node cannot be opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedrelay.engines.flower.credentials import PrivateKey, PublicKey, write_private
from fedrelay.engines.flower.messages import BadMessage
from fedrelay.engines.flower.sealing_certificate import SealingCertificate
from fedrelay.errors import EngineError

SEALING_KEY_FILE = "sealing-key"
"""The file of the private sealing key, in the node's folder."""

_KEY_BYTES = 32
_NONCE = bytes(12)  # every key encrypts one envelope only
_KEY_PURPOSE, _ENVELOPE_PURPOSE = "sealing key", "envelope"


@dataclass(frozen=True)
class Handover:
    """The place of one handover in a run. Sender and receiver derive it from their own requests."""

    run: str
    round: int
    attempt: int
    route: int
    plan: tuple[str, ...]
    """The names of all nodes of the route, in order."""

    from_hop: int
    to_hop: int
    job: str
    """SHA-256 of what all hops of the route have in common: the training job, and the length that updates may have."""

    @property
    def sender(self) -> str:
        return self.plan[self.from_hop]

    @property
    def receiver(self) -> str:
        return self.plan[self.to_hop]

    def encoded(self) -> bytes:
        """The same bytes at sender and receiver."""
        return json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class NodeIdentity:
    """The private keys of a node."""

    key: PrivateKey
    """Signs replies and envelopes."""

    sealing: X25519PrivateKey
    """Opens envelopes."""

    @classmethod
    def load(cls, key: PrivateKey, folder: Path) -> Self:
        """The identity with the sealing key in a node's folder, which is drawn once.

        Raises:
            EngineError: The file of the sealing key is damaged.
        """
        path = folder / SEALING_KEY_FILE
        if not path.is_file():
            write_private(path, X25519PrivateKey.generate().private_bytes_raw())
        content = path.read_bytes()
        if len(content) != _KEY_BYTES:
            raise EngineError(f"{path}: is damaged; remove it, and the node draws a new key")
        return cls(key, X25519PrivateKey.from_private_bytes(content))

    def certificate(self) -> SealingCertificate:
        """The public sealing key, signed."""
        public = self.sealing.public_key().public_bytes_raw()
        return SealingCertificate(key=public.hex(), signature=sign(self.key, _KEY_PURPOSE, public).hex())


def sign(key: PrivateKey, purpose: str, content: bytes) -> bytes:
    """A signature of fixed length; it holds for this purpose only."""
    signature = key.sign(_signed_bytes(purpose, content), ec.ECDSA(hashes.SHA384()))
    size = _signature_bytes(key.public_key()) // 2
    return b"".join(part.to_bytes(size, "big") for part in utils.decode_dss_signature(signature))


def is_signed_by(key: PublicKey, purpose: str, content: bytes, signature: bytes) -> bool:
    """Whether a signature is that of a key, for this purpose and this content."""
    size = _signature_bytes(key) // 2
    if len(signature) != 2 * size:
        return False
    first, second = (int.from_bytes(part, "big") for part in (signature[:size], signature[size:]))
    try:
        encoded = utils.encode_dss_signature(first, second)
        key.verify(encoded, _signed_bytes(purpose, content), ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


def sealing_key_of(name: str, certificate: SealingCertificate, identity: PublicKey) -> X25519PublicKey:
    """The sealing key of a node.

    Raises:
        BadMessage: The identity did not sign it.
    """
    public, signature = bytes.fromhex(certificate.key), bytes.fromhex(certificate.signature)
    if not is_signed_by(identity, _KEY_PURPOSE, public, signature):
        raise BadMessage(f"the sealing key of {name!r} is not signed by its key in the roster")
    return X25519PublicKey.from_public_bytes(public)


def check_certificates(certificates: Mapping[str, SealingCertificate | None], keys: Mapping[str, PublicKey]) -> None:
    """Refuse a node whose sealing key is not its own: the nodes before it on sealed routes would all fail.

    Args:
        certificates: Node → its sealing key; None if it takes no part in sealed routes.
        keys: Node → its key, for nodes that have not left.

    Raises:
        EngineError: A node did not sign its sealing key.
    """
    for name, certificate in certificates.items():
        try:
            if certificate is not None and name in keys:
                sealing_key_of(name, certificate, keys[name])
        except BadMessage as error:
            raise EngineError(f"node {name!r} is refused: {error}; start it with its own KEY and folder") from None


def seal(content: bytes, handover: Handover, sender: PrivateKey, receiver: X25519PublicKey) -> bytes:
    """Encrypt content for a receiver and sign it."""
    ephemeral = X25519PrivateKey.generate()
    public, bound = ephemeral.public_key().public_bytes_raw(), handover.encoded()
    cipher = ChaCha20Poly1305(_derived_key(ephemeral.exchange(receiver), public, receiver.public_bytes_raw(), bound))
    encrypted = public + cipher.encrypt(_NONCE, content, bound)
    return sign(sender, _ENVELOPE_PURPOSE, bound + encrypted) + encrypted


def open_envelope(envelope: bytes, handover: Handover, receiver: X25519PrivateKey, sender: PublicKey) -> bytes:
    """The content of an envelope.

    Raises:
        BadMessage: The sender did not make it for this place of the run, or somebody changed it.
    """
    size, bound = _signature_bytes(sender), handover.encoded()
    signature, encrypted = envelope[:size], envelope[size:]
    if not is_signed_by(sender, _ENVELOPE_PURPOSE, bound + encrypted, signature):
        raise BadMessage(
            f"the envelope is not what {handover.sender!r} sealed for this hop: it was changed on the way, or it is "
            "from another hop, round or run"
        )
    public, own = encrypted[:_KEY_BYTES], receiver.public_key().public_bytes_raw()
    try:
        shared = receiver.exchange(X25519PublicKey.from_public_bytes(public))
        cipher = ChaCha20Poly1305(_derived_key(shared, public, own, bound))
        return cipher.decrypt(_NONCE, encrypted[_KEY_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise BadMessage(f"the envelope of {handover.sender!r} is for another sealing key than this node's") from None


def _derived_key(shared: bytes, ephemeral: bytes, receiver: bytes, bound: bytes) -> bytes:
    info = b"fedrelay sealed handover" + ephemeral + receiver + hashlib.sha256(bound).digest()
    return HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=info).derive(shared)


def _signature_bytes(key: PublicKey) -> int:
    return 2 * ((key.curve.key_size + 7) // 8)


def _signed_bytes(purpose: str, content: bytes) -> bytes:
    """The purpose keeps a signature of one kind from being used as another."""
    return f"fedrelay {purpose}\0".encode() + content
