"""Which node is sent the frozen parameters, and when a node is not believed."""

from __future__ import annotations

import numpy as np
import pytest

from fedrelay.engines.flower.messages import FROZEN, BadMessage, Message
from fedrelay.engines.flower.server.frozen_parameter_delivery import FrozenParameterDelivery
from fedrelay.models.frozen_parameter_serialization import frozen_sha256

BYTES = np.arange(5, dtype=np.uint8)
HOP = Message({"kind": "hop"})


def says(missing: object) -> Message:
    return Message({"kind": "setup", "missing": missing})


def test_without_frozen_parameters_there_is_no_setup():
    setup = FrozenParameterDelivery()
    assert setup.request(0) is None
    assert not setup.take_reply(0, says(missing=True))


def test_a_node_is_asked_before_anything_is_sent():
    setup = FrozenParameterDelivery(BYTES)
    asked = setup.request(0)
    assert asked.header == {"kind": "setup", FROZEN: frozen_sha256(BYTES)}
    assert not asked.arrays
    assert setup.take_reply(0, says(missing=False))
    assert setup.request(0) is None
    assert setup.request(1) is not None
    assert setup.take_reply(1, says(missing=True))
    assert setup.request(1).arrays == {FROZEN: BYTES}
    assert setup.take_reply(1, says(missing=False))
    assert setup.request(1) is None
    assert not setup.take_reply(1, HOP)


def test_a_node_that_lost_them_is_sent_them_again_but_not_forever():
    setup = FrozenParameterDelivery(BYTES)
    setup.request(0)
    setup.take_reply(0, says(missing=False))
    for _ in range(3):
        assert not setup.take_reply(0, HOP)
        assert setup.take_reply(0, says(missing=True))  # its reply to a later hop
        assert setup.request(0).arrays
        assert setup.take_reply(0, says(missing=False))
    with pytest.raises(BadMessage, match="did not keep the frozen parameters"):
        setup.take_reply(0, says(missing=True))
    assert setup.request(0).arrays  # if the request is tried again


@pytest.mark.parametrize("reply", [HOP, says("no"), Message({"kind": "setup"})])
def test_a_reply_without_a_clear_answer_is_refused(reply):
    setup = FrozenParameterDelivery(BYTES)
    setup.request(0)
    with pytest.raises(BadMessage, match="does not say whether it has the frozen parameters"):
        setup.take_reply(0, reply)


def test_a_ready_node_that_says_so_again_has_not_replied_to_its_request():
    setup = FrozenParameterDelivery(BYTES)
    setup.request(0)
    setup.take_reply(0, says(missing=False))
    assert not setup.take_reply(0, says(missing=False))
