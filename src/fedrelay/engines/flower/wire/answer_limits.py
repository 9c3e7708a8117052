"""Limits of a SuperLink's answers, kept while they arrive.

Without them, a hostile SuperLink or a proxy that ends its TLS could fill a node's memory, with an endless answer
or with a small one that is compressed, and send the node's requests on to any address in its network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.wire.superlink_process.protocol import LARGEST_REQUEST

LARGEST_ANSWER = LARGEST_REQUEST + 10**6
"""Bytes of an answer with one message: it came to the SuperLink in a request, and an answer says little more."""

_LARGEST = "fedrelay_largest_answer"


class AnswerRefused(httpx.DecodingError):
    """A SuperLink's answer is compressed, too long, or leads elsewhere."""


def limit_answers(client: httpx.Client) -> None:
    """Have a client refuse answers that our SuperLink does not send."""
    client.headers["accept-encoding"] = "identity"
    client.follow_redirects = False
    client.event_hooks = {"response": [_check_before_it_is_read]}


class AnswerLimitHttpInterceptor:
    """Says how long the answer to a request may be: who asks for several messages may get as many."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        messages: Any = getattr(context.message, "message_ids", ())
        context.request.extensions[_LARGEST] = max(1, len(messages)) * LARGEST_ANSWER
        return call_next(context)


def _check_before_it_is_read(response: httpx.Response) -> None:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise AnswerRefused(
            f"the answer is compressed ({one_line(encoding, 40)}), which is never accepted; who runs the SuperLink "
            "must turn off compression in the proxy before it"
        )
    if response.is_redirect:
        raise AnswerRefused(
            f"the answer leads elsewhere (status {response.status_code}), which is never followed; give the address of "
            "the SuperLink itself"
        )
    assert isinstance(response.stream, httpx.SyncByteStream)
    response.stream = _BoundedStream(response.stream, response.request.extensions.get(_LARGEST, LARGEST_ANSWER))


class _BoundedStream(httpx.SyncByteStream):
    """The body of an answer, up to a number of bytes."""

    def __init__(self, stream: httpx.SyncByteStream, largest: int) -> None:
        self.stream, self.largest = stream, largest

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for piece in self.stream:
            count += len(piece)
            if count > self.largest:
                raise AnswerRefused(
                    f"the answer has more than {self.largest} bytes, which no SuperLink of FedRelay sends; check what "
                    "answers at this address"
                )
            yield piece

    def close(self) -> None:
        self.stream.close()
