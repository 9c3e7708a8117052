"""Messages as bytes, for files and envelopes: arrays as safetensors, the header as JSON in its metadata."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedrelay.engines.flower.messages import BadMessage, Message, header_from_json

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


def message_digest(message: Message, without: frozenset[str] = frozenset()) -> str:
    """The SHA-256 of everything in a message, except these fields of its header.

    Raises:
        BadMessage: Its header is nested too deeply.
    """
    header = {name: value for name, value in message.header.items() if name not in without}
    try:
        found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    except RecursionError:
        raise BadMessage("its header is nested too deeply") from None
    for name in sorted(message.arrays):
        array = message.arrays[name]
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.tobytes())
    return found.hexdigest()
