"""Waiting for messages, also at a SuperLink that does not tell who waits."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.proto.fleet_pb2 import PullMessagesRequest
from tests.engines.flower.wire.stand_ins import CUT, status

from fedrelay.engines.flower.wire.message_waiter import GRACE, MessageWaiter


class Stub:
    """A client of a SuperLink that tells these numbers of messages; an exception is raised."""

    def __init__(self, *counts):
        self.counts, self.asked = list(counts), []

    def _unary_unary(self, *, path, rpc_method, request, response_type, timeout):
        self.asked.append((path, timeout))
        found = self.counts.pop(0)
        if isinstance(found, Exception):
            raise found
        return response_type(value=found)


def test_there_are_new_messages_if_the_number_has_changed():
    stub = Stub(1, 1, 3, 1)  # the last one was restarted
    waiter = MessageWaiter(stub, "/wait")
    assert [waiter.wait(PullMessagesRequest(), 2.0) for _ in range(4)] == [1, 0, 2, 1]
    assert [path for path, _ in stub.asked] == [f"/wait?known={known}&seconds=2" for known in (0, 1, 1, 3)]
    assert {timeout for _, timeout in stub.asked} == {2.0 + GRACE}
    assert waiter.is_supported


def test_a_superlink_that_does_not_tell_is_remembered():
    waiter = MessageWaiter(Stub(status(404)), "/wait")
    assert not waiter.wait(PullMessagesRequest(), 2.0)
    assert not waiter.is_supported


@pytest.mark.parametrize("failure", [status(401), status(503), CUT])
def test_other_failures_are_not_hidden(failure):
    waiter = MessageWaiter(Stub(failure), "/wait")
    with pytest.raises(httpx.HTTPError):
        waiter.wait(PullMessagesRequest(), 2.0)
    assert waiter.is_supported
