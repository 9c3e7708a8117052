"""Our messages as Flower's. A small one is sent whole; Flower sends a larger one as a tree of parts.

A call costs a SuperLink several milliseconds, whatever it does, and even a message without arrays has four parts.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from secrets import token_hex
from typing import Any, TypeVar

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_head_values_from_object_content,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)

from fedrelay.engines.flower.messages import Message, header_from_json

PATIENCE = 30.0
"""Seconds to wait for the next part of an announced message. A part has up to five megabytes."""

BLIP = 5.0
"""Seconds for which failures of the network are tolerated while a message is sent or fetched."""

FIRST_PAUSE, LONGEST_PAUSE = 0.03, 0.3
"""Seconds between two polls for a part that is not there yet."""

WHOLE = 4 * 10**6
"""Bytes up to which a message is sent whole, in the call that announces it."""

HEADER, ARRAYS = "header", "arrays"

T = TypeVar("T")


class IncompleteMessage(Exception):
    """Not all parts of a message arrived."""


class IncomingMessageTooLarge(ValueError):
    """A message has more bytes than allowed."""


def to_flower(message: Message) -> RecordDict:
    """A message as Flower sends it: arrays as arrays, everything else as one JSON text."""
    arrays = ArrayRecord({name: Array(array) for name, array in message.arrays.items()})
    return RecordDict({HEADER: ConfigRecord({"json": json.dumps(dict(message.header))}), ARRAYS: arrays})


def from_flower(message: FlowerMessage, largest: float = math.inf) -> Message:
    """A message from Flower. Arrays are read without pickle, and only if they have at most `largest` bytes together."""
    header = header_from_json(str(message.content[HEADER]["json"]))
    arrays = message.content.array_records.get(ARRAYS) or ArrayRecord()
    if sum(len(array.data) for array in arrays.values()) > largest:
        raise IncomingMessageTooLarge(f"more than {largest} bytes")
    found = {str(name): array.numpy() for name, array in arrays.items()}
    if not all(type(array) is np.ndarray for array in found.values()):  # an archive gives another type
        raise ValueError("not an array")
    return Message(header, found)


def is_sent_whole(message: FlowerMessage) -> bool:
    """Whether a message that has been announced is all there."""
    return message.has_content() and HEADER in message.content


@dataclass(frozen=True)
class Announcement:
    """What a SuperLink gets first of a message."""

    message: ProtoMessage
    tree: ObjectTree
    """The parts that are to be sent; only a root if the message is sent whole."""

    is_whole: bool

    @classmethod
    def of(cls, message: FlowerMessage) -> Announcement:
        """Announce a message, and give it an id: with parts that of its content, as a SuperLink expects."""
        if message.has_content() and _content_bytes(message.content) <= WHOLE:
            _set_id(message, token_hex(32))
            return cls(message_to_proto(message), ObjectTree(object_id=message.metadata.message_id), is_whole=True)
        _set_id(message, message.object_id)
        bare = remove_content_from_message(message) if message.has_content() else message
        return cls(message_to_proto(bare), get_object_tree(message), is_whole=False)


def through_blips(call: Callable[[], T]) -> T:
    """Call a SuperLink, again if the network fails for a moment.

    All our calls may be repeated: it keeps one of two equal messages, and hands out again what did not arrive.
    """
    began = time.monotonic()
    while True:
        try:
            return call()
        except httpx.TransportError:
            if time.monotonic() - began > BLIP:
                raise
            time.sleep(LONGEST_PAUSE)


def push(stub: Any, node: Node, run: int, session: str, message: FlowerMessage, wanted: set[str]) -> None:
    """Send the parts of a message that the SuperLink does not have yet."""
    send = make_push_object_fn_protobuf(stub.PushObject, node, run, session)

    def send_part(name: str, content: bytes) -> None:
        through_blips(lambda: send(name, content))

    push_objects(get_all_nested_objects(message), send_part, object_ids_to_push=wanted)


def fetch(stub: Any, node: Node, run: int, tree: ObjectTree, largest: int, longest: float = math.inf) -> FlowerMessage:
    """Fetch all parts of an announced message.

    Raises:
        IncompleteMessage: Parts stopped arriving, or it took longer than `longest` seconds.
        ValueError: It has more than `largest` bytes, or is not a message.
        httpx.HTTPError: The SuperLink cannot be reached.
    """
    most = 64 + largest // 10**6
    names = [each.object_id for each in islice(iterate_object_tree(tree), most + 1)]  # there may be millions
    if len(names) > most:
        raise IncomingMessageTooLarge("too many parts")
    puller = _PartPuller(make_pull_object_fn_protobuf(stub.PullObject, node, run), largest)
    try:
        contents = pull_objects(
            names,
            puller,
            max_time=longest,
            max_tries_per_object=None,
            initial_backoff=FIRST_PAUSE,
            backoff_cap=LONGEST_PAUSE,
        )
    except ObjectPullError:
        lost = time.monotonic() - puller.began < longest
        raise IncompleteMessage("a part is lost" if lost else f"not complete after {longest:g} s") from None
    with suppress(httpx.HTTPError):  # the message is here, even if the SuperLink does not learn of it
        stub.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=tree.object_id)
        )
    if _assembled_bytes(contents) > largest:
        raise IncomingMessageTooLarge(f"more than {largest} bytes")
    message = inflate_object_from_contents(tree.object_id, contents)
    if not isinstance(message, FlowerMessage):
        raise ValueError("not a message")
    _set_id(message, tree.object_id)
    return message


def _set_id(message: FlowerMessage, id: str) -> None:
    message.metadata.__dict__["_message_id"] = id


def _content_bytes(content: RecordDict) -> int:
    return len(str(content[HEADER]["json"])) + sum(len(array.data) for array in content.array_records[ARRAYS].values())


class _PartPuller:
    """Pulls parts from several threads; counts bytes and the seconds since the last part."""

    def __init__(self, pull: Callable[[str], bytes], largest: int) -> None:
        self.pull, self.largest = pull, largest
        self.lock, self.bytes = threading.Lock(), 0
        self.began = self.last_part = time.monotonic()

    def __call__(self, name: str) -> bytes:
        """One part. Raises ObjectUnavailableError if it is worth polling again."""
        if self.bytes > self.largest:
            raise IncomingMessageTooLarge(f"more than {self.largest} bytes")
        try:
            content = self.pull(name)
        except ObjectUnavailableError:
            if time.monotonic() - self.last_part > PATIENCE:
                raise IncompleteMessage(f"no further part in {PATIENCE:g} s") from None
            raise
        except httpx.TransportError:
            if time.monotonic() - self.last_part > BLIP:
                raise
            raise ObjectUnavailableError(name) from None
        with self.lock:
            self.last_part = time.monotonic()
            self.bytes += len(content)
            if self.bytes > self.largest:
                raise IncomingMessageTooLarge(f"more than {self.largest} bytes")
        return content


def _assembled_bytes(contents: Mapping[str, bytes]) -> int:
    """The bytes of all arrays when assembled: an array may name the same chunk a thousand times."""
    total = 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__qualname__:
            pieces = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            total += sum(len(contents[children[piece]]) for piece in pieces)
    return total
