"""Messages as bytes, for files and envelopes: arrays as safetensors, the header as JSON in its metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedrelay.engines.flower.messages import CERTIFICATE, SIGNATURE, BadMessage, Header, Message, header_from_json

SIGNATURE_FIELDS = frozenset({CERTIFICATE, SIGNATURE})
"""The fields that a signature does not cover: itself, and whose it is."""

ArrayDigests = Mapping[str, list[Any]]
"""What is known of the arrays of a message without them: name → type, shape and SHA-256."""

_LENGTH_BYTES = 8


def message_to_bytes(message: Message) -> bytes:
    """A message as bytes."""
    return save(dict(message.arrays), {"header": json.dumps(dict(message.header))})


def message_from_bytes(content: bytes) -> Message:
    """The message that `message_to_bytes` wrote.

    Raises:
        BadMessage: It cannot be read.
    """
    try:
        length = int.from_bytes(content[:_LENGTH_BYTES], "little")
        about: Any = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
        text = about["__metadata__"]["header"]
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        raise BadMessage("it cannot be read") from None
    return Message(header_from_json(text), arrays)


def padded(content: bytes, size: int, step: int) -> bytes:
    """Content with its length in front and zeros behind: `size` bytes, or the fewest steps more that it needs."""
    framed = len(content).to_bytes(_LENGTH_BYTES, "little") + content
    more = max(0, -(-(len(framed) - size) // step))
    return framed.ljust(size + more * step, b"\0")


def unpadded(content: bytes) -> bytes:
    """What `padded` was given."""
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    return content[_LENGTH_BYTES : _LENGTH_BYTES + length]


def message_digest(message: Message, without: frozenset[str] = SIGNATURE_FIELDS) -> str:
    """The SHA-256 of everything in a message, except these fields of its header; by default, of all that is signed.

    Raises:
        BadMessage: Its header is nested too deeply.
    """
    return digest_with_arrays(message.header, array_digests(message), without)


def array_digests(message: Message) -> ArrayDigests:
    """Name → type, shape and SHA-256 of each array of a message."""
    return {
        name: [array.dtype.str, list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in message.arrays.items()
    }


def digest_with_arrays(header: Header, arrays: ArrayDigests, without: frozenset[str] = SIGNATURE_FIELDS) -> str:
    """The digest of a message of which the header and the digests of its arrays are known.

    Raises:
        BadMessage: Its header is nested too deeply.
    """
    signed = {name: value for name, value in header.items() if name not in without}
    try:
        return hashlib.sha256(json.dumps([signed, arrays], sort_keys=True).encode()).hexdigest()
    except RecursionError:
        raise BadMessage("its header is nested too deeply") from None
