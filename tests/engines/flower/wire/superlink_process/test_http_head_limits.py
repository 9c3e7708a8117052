"""Strangers who never finish a request hold neither memory nor a connection."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from fastapi.responses import PlainTextResponse

from fedrelay.engines.flower.wire.superlink_process.http_head_limits import LimitedHttpProtocol

REQUEST = b"POST / HTTP/1.1\r\nhost: link\r\ncontent-length: 4\r\n\r\nbody"


class Short(LimitedHttpProtocol):
    largest_head, head_seconds = 1000, 60.0


class Hasty(LimitedHttpProtocol):
    largest_head, head_seconds = 10**9, 0.2


async def answered(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await PlainTextResponse("answered")(scope, receive, send)


def after(connection, before):
    """The connection, after a request that is usual."""
    if before:
        connection.send(before)
        assert connection.status() == 200
    return connection


def send_until_closed(connection, piece):
    for _ in range(2000):
        connection.send(piece)
        time.sleep(0.001)


@pytest.mark.parametrize("before", [b"", REQUEST], ids=["first", "second"])
@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"POST /", b"x" * 300),
        (b"POST / HTTP/1.1\r\nname: ", b"x" * 300),
        (b"POST / HTTP/1.1\r\n", b"name: value\r\n" * 20),
    ],
    ids=["path", "value", "headers"],
)
def test_a_head_without_end_is_cut_off(before, start, piece, serve):
    connection = after(serve(answered, Short)(), before)
    connection.send(start)
    with pytest.raises(ConnectionError):
        send_until_closed(connection, piece)


@pytest.mark.parametrize(
    ("before", "start"),
    [
        (b"", b""),
        (b"", b"\r\n"),
        (b"", b"POST / HTTP/1.1\r\nname: value\r\n"),
        (REQUEST, b"\r\n"),
        (REQUEST, b"POST /"),
    ],
)
def test_a_head_that_does_not_come_is_not_waited_for(before, start, serve):
    connection = after(serve(answered, Hasty)(), before)
    connection.send(start)
    assert connection.is_closed()


def test_usual_requests_are_answered(serve):
    """Several on one connection, slowly; a body is no head, however long it is or takes."""
    connection = serve(answered, Hasty)()
    for _ in range(2):
        connection.send(REQUEST)
        assert connection.status() == 200
        connection.send(b"POST / HTTP/1.1\r\nhost: link\r\ncontent-length: 20000\r\n\r\n", bytes(10_000))
        time.sleep(0.3)
        connection.send(bytes(10_000))
        assert connection.status() == 200
