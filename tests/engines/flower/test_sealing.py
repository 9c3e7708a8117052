"""Sealed envelopes: only the receiver opens them, only at their place of the run, and only unchanged."""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedrelay.engines.flower.messages import BadMessage
from fedrelay.engines.flower.sealing import (
    SEALING_KEY_FILE,
    Handover,
    NodeIdentity,
    check_certificates,
    is_signed_by,
    open_envelope,
    seal,
    sealing_key_of,
    sign,
)
from fedrelay.errors import EngineError

PLACE = Handover("0123456789abcdef", 3, 0, 1, ("a", "b", "c"), 0, 1, "job")
CONTENT = b"a model" * 100


def identity() -> NodeIdentity:
    return NodeIdentity(ec.generate_private_key(ec.SECP384R1()), X25519PrivateKey.generate())


A, B, C = identity(), identity(), identity()
ENVELOPE = seal(CONTENT, PLACE, A.key, B.sealing.public_key())


def opened(envelope=ENVELOPE, place=PLACE, receiver=B, sender=A):
    return open_envelope(envelope, place, receiver.sealing, sender.key.public_key())


def test_the_receiver_finds_the_content_and_nobody_sees_it():
    assert opened() == CONTENT
    assert CONTENT[:7] not in ENVELOPE
    assert len(ENVELOPE) == 96 + 32 + len(CONTENT) + 16  # signature, ephemeral key, authentication
    assert seal(CONTENT, PLACE, A.key, B.sealing.public_key()) != ENVELOPE


@pytest.mark.parametrize("place", [0, 50, 100, 130, len(ENVELOPE) - 1])
def test_one_changed_bit_is_noticed(place):
    changed = bytearray(ENVELOPE)
    changed[place] ^= 1
    with pytest.raises(BadMessage, match="it was changed on the way"):
        opened(bytes(changed))


@pytest.mark.parametrize(
    "envelope", [b"", ENVELOPE[:90], ENVELOPE[:-1], ENVELOPE + b"0"], ids=["empty", "90 bytes", "one less", "one more"]
)
def test_other_lengths_are_noticed(envelope):
    with pytest.raises(BadMessage):
        opened(envelope)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "fedcba9876543210"},
        {"round": 4},
        {"attempt": 1},
        {"route": 0},
        {"plan": ("a", "b", "d")},
        {"to_hop": 2},
        {"from_hop": 1, "to_hop": 2},
        {"job": "another"},
    ],
    ids=str,
)
def test_an_envelope_opens_at_its_place_only(change):
    with pytest.raises(BadMessage, match="another hop, round or run"):
        opened(place=replace(PLACE, **change))


def test_others_neither_open_it_nor_pass_it_off_as_their_own():
    with pytest.raises(BadMessage, match="is for another sealing key"):
        opened(receiver=C)
    with pytest.raises(BadMessage, match="is not what 'a' sealed"):
        opened(sender=C)
    encrypted = ENVELOPE[96:]
    own = replace(PLACE, plan=("c", "b", "a"))
    stolen = sign(C.key, "envelope", own.encoded() + encrypted) + encrypted
    with pytest.raises(BadMessage):
        opened(stolen, own, sender=C)


def test_a_sealing_key_must_be_signed_by_the_key_in_the_roster():
    certificate = B.certificate()
    found = sealing_key_of("b", certificate, B.key.public_key())
    assert found.public_bytes_raw() == B.sealing.public_key().public_bytes_raw()
    for wrong in (C.certificate(), certificate.model_copy(update={"key": C.certificate().key})):
        with pytest.raises(BadMessage, match="the sealing key of 'b' is not signed by its key in the roster"):
            sealing_key_of("b", wrong, B.key.public_key())


def test_signatures_hold_for_one_purpose():
    signature = sign(A.key, "envelope", b"content")
    assert is_signed_by(A.key.public_key(), "envelope", b"content", signature)
    assert not is_signed_by(A.key.public_key(), "reply", b"content", signature)
    assert not is_signed_by(A.key.public_key(), "envelope", b"content", bytes(96))


def test_the_sealing_key_is_drawn_once_and_private(tmp_path):
    first, second = (NodeIdentity.load(A.key, tmp_path) for _ in range(2))
    assert first.certificate().key == second.certificate().key
    path = tmp_path / SEALING_KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(EngineError, match="sealing-key: is damaged; remove it"):
        NodeIdentity.load(A.key, tmp_path)


def test_the_server_names_a_node_whose_sealing_key_is_not_its_own():
    keys = {"a": A.key.public_key(), "b": B.key.public_key()}
    check_certificates({"a": A.certificate(), "b": None, "left": C.certificate()}, keys)
    with pytest.raises(EngineError, match=r"node 'b' is refused: the sealing key of 'b' is not signed by its key"):
        check_certificates({"a": A.certificate(), "b": C.certificate()}, keys)
