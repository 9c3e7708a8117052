"""Strangers, and nodes that stall, cannot fill the memory of a SuperLink with the bodies of requests."""

from __future__ import annotations

import re
import threading
import time

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool

from fedrelay.engines.flower.wire.superlink_process.request_limits import BodyLimits, BodyRefused, RequestLimits

SMALL, LARGE = 1000, 100_000
LIMITS = BodyLimits(
    largest=LARGE, largest_of_strangers=SMALL, pause=0.3, slowest=LARGE / 0.2, at_once=3, at_once_of_one=2
)


def named(request):
    """Who sends a request, by a header."""
    if (name := request.headers.get("sender")) is None:
        raise BodyRefused(401, "unknown")
    return name


class Behind:
    """What is behind the limits: it answers how many bytes it got, when it may."""

    def __init__(self):
        self.may_answer, self.read = threading.Event(), []
        self.may_answer.set()

    async def __call__(self, scope, receive, send):
        message = await receive()
        assert not message["more_body"]
        self.read.append(len(message["body"]))
        await run_in_threadpool(self.may_answer.wait)
        await PlainTextResponse("answered")(scope, receive, send)


@pytest.fixture
def behind():
    found = Behind()
    yield found
    found.may_answer.set()


@pytest.fixture
def connect(serve, behind):
    return serve(RequestLimits(behind, named, LIMITS))


def head(length, sender=None):
    known = f"sender: {sender}\r\n" if sender else ""
    return f"POST / HTTP/1.1\r\nhost: link\r\n{known}content-length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize(("length", "sender"), [(0, None), (SMALL, None), (SMALL, "a"), (LARGE, "a")])
def test_bodies_within_the_limits_are_read(length, sender, connect, behind):
    connection = connect()
    for _ in range(2):
        connection.send(head(length, sender), bytes(length))
        assert connection.status() == 200
    assert behind.read == [length, length]


def test_every_answer_says_what_time_it_is(connect):
    for request in (head(0), head(SMALL + 1)):
        connection = connect()
        connection.send(request)
        answer = connection.socket.recv(65_536).decode()
        assert float(re.search(r"fedrelay-time: ([0-9.]+)", answer)[1]) == pytest.approx(time.time(), abs=10)


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head(SMALL + 1), 401),
        (head(LARGE + 1, "a"), 413),
        (head(10**15), 413),
        (head("1e3", "a"), 400),  # the parser's own
        (b"POST / HTTP/1.1\r\nhost: link\r\nsender: a\r\ntransfer-encoding: chunked\r\n\r\n", 413),
    ],
    ids=["of a stranger", "too large", "far too large", "without a number", "of unknown length"],
)
def test_others_are_refused_before_they_are_sent(request_head, status, connect, behind):
    connection = connect()
    connection.send(request_head)
    assert connection.status() == status
    assert connection.is_closed()
    assert behind.read == []


@pytest.mark.parametrize(("length", "sender"), [(SMALL, None), (LARGE, "a")])
def test_a_body_that_stops_is_given_up(length, sender, connect, behind):
    connection = connect()
    connection.send(head(length, sender), bytes(length - 1))
    assert connection.status() == 408
    assert connection.is_closed()
    assert behind.read == []


def test_a_body_that_drips_is_given_up(connect, behind):
    """It never pauses for long, and would still take hours."""
    connection = connect()
    connection.send(head(LARGE, "a"))
    with pytest.raises(ConnectionError):
        drip(connection)
    assert behind.read == []


def drip(connection):
    for _ in range(400):
        connection.send(b"x")
        time.sleep(0.05)


def test_one_sender_does_not_take_all_the_room(connect, behind):
    """Node a stalls with as many bodies as it can. Another gets through, and what node a sends after that waits."""
    behind.may_answer.clear()
    stalled = [connect() for _ in range(2)]
    for each in stalled:
        each.send(head(LARGE, "a"), bytes(LARGE))
    until(lambda: len(behind.read) == 2)
    third, other, stranger = connect(), connect(), connect()
    third.send(head(LARGE, "a"), bytes(LARGE))
    other.send(head(LARGE, "b"), bytes(LARGE))
    stranger.send(head(SMALL), bytes(SMALL))
    until(lambda: sorted(behind.read) == [SMALL, LARGE, LARGE, LARGE])
    assert third.status() == 503  # after the pause
    full = connect()
    full.send(head(LARGE, "c"), bytes(LARGE))
    assert full.status() == 503
    behind.may_answer.set()
    assert [each.status() for each in (*stalled, other, stranger)] == [200] * 4
    again = connect()
    again.send(head(LARGE, "a"), bytes(LARGE))
    assert again.status() == 200


def until(happens):
    began = time.monotonic()
    while not happens():
        assert time.monotonic() - began < 20
        time.sleep(0.005)
