"""A SuperLink's parts of messages, without a SuperLink; the methods of stand-ins are called what Flower calls them."""

# ruff: noqa: N802

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import httpx
import numpy as np
from flwr.app import Error
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.wire import superlink_run

ME = Node(node_id=1)
LARGEST = 10**6

REQUEST = httpx.Request("POST", "https://link")
CUT = httpx.ConnectError("cut")


def status(code):
    return httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(code, text="no", request=REQUEST))


def flower_message(content, reply_to=""):
    """A message with this content, as it lies at a SuperLink."""
    about = superlink_run.Metadata(7, "", 5, 1, reply_to, "", time.time(), 60.0, "query")
    about.delivered_at = ""
    whole = {"error": content} if isinstance(content, Error) else {"content": content}
    message = superlink_run.make_message(about, **whole)
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


def plain_message(size=1000):
    return Message({"kind": "hop"}, {"models": np.arange(size, dtype=np.float32).reshape(1, -1)})


class StoredParts:
    """The parts of messages at a SuperLink; `is_available` is called with the number of polls."""

    def __init__(self, *messages, is_available=lambda polls: True):
        self.parts = {name: part.deflate() for each in messages for name, part in get_all_nested_objects(each).items()}
        self.is_available, self.polls, self.confirmed, self.lock = is_available, 0, [], threading.Lock()

    def PullObject(self, request):
        with self.lock:
            self.polls += 1
            content = self.parts.get(request.object_id)
            there = content is not None and self.is_available(self.polls)
        return SimpleNamespace(object_found=content is not None, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)
