"""Our messages as Flower's, how their parts are sent and fetched, and the limits of both."""

from __future__ import annotations

import io
import json
from collections import Counter
from contextlib import nullcontext
from itertools import repeat
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, RecordDict
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_id,
    get_object_tree,
)
from tests.engines.flower.wire.stand_ins import CUT, LARGEST, ME, StoredParts, flower_message, plain_message

from fedrelay.engines.flower.messages import BadMessage, Message
from fedrelay.engines.flower.wire import flower_messages
from fedrelay.engines.flower.wire.flower_messages import (
    Announcement,
    IncompleteMessage,
    fetch,
    from_flower,
    is_sent_whole,
    through_blips,
    to_flower,
)


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())),
    st.dictionaries(st.text(min_size=1), st.tuples(st.sampled_from(["f4", "f8", "i8"]), st.integers(0, 5))),
)
def test_a_message_comes_back_unchanged(header, shapes):
    arrays = {name: np.arange(2 * size, dtype=kind).reshape(2, size) for name, (kind, size) in shapes.items()}
    found = from_flower(flower_message(to_flower(Message(header, arrays))))
    assert found.header == header
    assert {name: (array.dtype, array.tolist()) for name, array in found.arrays.items()} == {
        name: (array.dtype, array.tolist()) for name, array in arrays.items()
    }


def bytes_of(save):
    file = io.BytesIO()
    save(file)
    return Array("float32", (1,), "numpy.ndarray", file.getvalue())


@pytest.mark.parametrize(
    ("text", "arrays", "reason"),
    [
        ("[1]", {}, "header is not a mapping"),
        ("{", {}, "header cannot be read"),
        ('{"x":' + "[" * 60 + "]" * 60 + "}", {}, "header is nested more than 50 deep"),
        ('{"x":' + "[" * 100_000, {}, "header cannot be read"),
        ("{}", {"models": bytes_of(lambda file: np.save(file, np.array([{}]), allow_pickle=True))}, "allow_pickle"),
        ("{}", {"models": bytes_of(lambda file: np.savez(file, x=np.zeros(1)))}, "not an array"),
        ("{}", {"models": Array("float32", (1,), "numpy.ndarray", b"garbage")}, "allow_pickle"),
        ("{}", {name: Array(np.zeros(10**5, np.float32)) for name in "abc"}, "more than 1000000 bytes"),
    ],
    ids=[
        "no mapping",
        "no JSON",
        "nested",
        "unreadable",
        "pickled",
        "an archive",
        "garbage",
        "too large",
    ],
)
def test_other_forms_are_refused(text, arrays, reason):
    content = RecordDict({"header": ConfigRecord({"json": text}), "arrays": ArrayRecord(arrays)})
    with pytest.raises((ValueError, BadMessage), match=reason):
        from_flower(flower_message(content), LARGEST)


@pytest.mark.parametrize("size", [0, 10, 100, 1000])
def test_a_small_message_is_sent_whole_and_a_larger_one_in_parts(size, monkeypatch):
    """The same arrives either way."""
    monkeypatch.setattr(flower_messages, "WHOLE", 600)
    message = flower_message(to_flower(plain_message(size)))
    announced = Announcement.of(message)
    arrived = message_from_proto(announced.message)
    assert announced.tree.object_id == message.metadata.message_id == arrived.metadata.message_id
    assert announced.is_whole == is_sent_whole(arrived) == (size <= 100)
    assert len(announced.tree.children) == (0 if announced.is_whole else 1)
    found = from_flower(arrived if announced.is_whole else fetched(StoredParts(message), message))
    assert found.arrays["models"].tolist() == plain_message(size).arrays["models"].tolist()


def test_two_equal_messages_are_two():
    """A SuperLink keeps one message of each id."""
    ids = {Announcement.of(flower_message(to_flower(plain_message()))).message.metadata.message_id for _ in range(2)}
    assert len(ids) == 2


def test_an_error_is_no_whole_message():
    announced = Announcement.of(flower_message(Error(code=101)))
    assert not announced.is_whole
    assert not is_sent_whole(message_from_proto(announced.message))


def test_a_blip_of_the_network_is_waited_for(clock):
    failures = [CUT, CUT]

    def send():
        if failures:
            raise failures.pop()
        return "sent"

    assert through_blips(send) == "sent"
    failures = [CUT] * 10**5
    with pytest.raises(httpx.ConnectError):
        through_blips(send)
    assert clock.now > flower_messages.BLIP


def fetched(stored, message, largest=LARGEST, longest=60.0):
    return fetch(stored, ME, 7, get_object_tree(message), largest, longest)


def test_all_parts_come():
    message = flower_message(to_flower(plain_message()))
    stored = StoredParts(message)
    assert from_flower(fetched(stored, message)).arrays["models"].sum() == 499500
    assert stored.polls == len(stored.parts) == 6
    assert stored.confirmed == [message.metadata.message_id]


def test_a_slow_upload_is_waited_for_as_long_as_parts_come(clock):
    """Far longer altogether than a single part is waited for."""

    def is_available(polls):
        clock.now += 9.0
        return polls % 3 == 0

    message = flower_message(to_flower(plain_message()))
    assert from_flower(fetched(StoredParts(message, is_available=is_available), message)).header == {"kind": "hop"}
    assert clock.now > 4 * flower_messages.PATIENCE


def test_an_upload_that_stops_is_given_up(clock):
    def is_available(polls):
        clock.now += 9.0
        return polls < 4

    message = flower_message(to_flower(plain_message()))
    with pytest.raises(IncompleteMessage, match="no further part in 30 s"):
        fetched(StoredParts(message, is_available=is_available), message)
    assert clock.now < 3 * flower_messages.PATIENCE


def test_an_upload_that_takes_too_long_altogether_is_given_up():
    message = flower_message(to_flower(plain_message()))
    with pytest.raises(IncompleteMessage, match=r"not complete after 0\.02 s"):
        fetched(StoredParts(message, is_available=lambda polls: False), message, longest=0.02)


def test_a_part_that_is_lost_is_not_waited_for():
    message = flower_message(to_flower(plain_message()))
    stored = StoredParts(message)
    stored.parts.popitem()
    with pytest.raises(IncompleteMessage, match="a part is lost"):
        fetched(stored, message)


@pytest.mark.parametrize(
    ("content", "largest", "reason"),
    [
        (to_flower(plain_message(1000)), 3999, "more than 3999 bytes"),
        (to_flower(Message({})), 100, "more than 100 bytes"),
    ],
)
def test_too_many_bytes(content, largest, reason):
    with pytest.raises(ValueError, match=reason):
        fetched(StoredParts(flower_message(content)), flower_message(content), largest)


def test_too_many_parts():
    """They are counted before any is asked for."""
    stored, tree = StoredParts(), ObjectTree(object_id="x", children=[ObjectTree(object_id="y")] * 65)
    with pytest.raises(ValueError, match="too many parts"):
        fetch(stored, ME, 7, tree, LARGEST - 1)
    assert stored.polls == 0


def test_parts_without_end_are_not_counted_to_their_end(monkeypatch):
    monkeypatch.setattr(flower_messages, "iterate_object_tree", lambda tree: repeat(tree))
    with pytest.raises(ValueError, match="too many parts"):
        fetch(StoredParts(), ME, 7, ObjectTree(object_id="x"), LARGEST)


def test_a_piece_that_is_named_many_times_counts_as_often():
    """A few bytes that would unfold to gigabytes."""
    array = Array(np.zeros(100, np.float32))
    [piece, whole] = get_all_nested_objects(array).values()
    body = {**json.loads(get_object_body(whole.deflate(), Array)), "arraychunk_ids": [0] * 10_000}
    text = json.dumps(body).encode()
    content = f"Array {piece.object_id} {len(text)}".encode() + b"\x00" + text
    stored, name = StoredParts(), get_object_id(content)
    stored.parts = {piece.object_id: piece.deflate(), name: content}
    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        fetch(stored, ME, 7, ObjectTree(object_id=name, children=[ObjectTree(object_id=piece.object_id)]), LARGEST)


def test_something_that_is_no_message():
    content = to_flower(plain_message())
    with pytest.raises(ValueError, match="not a message"):
        fetched(StoredParts(content), content)


def test_a_moment_without_network_costs_nothing(clock):
    message, failures = flower_message(to_flower(plain_message())), Counter()

    def is_available(polls):
        failures["all"] += polls < 4
        if polls < 4:
            raise CUT
        return True

    stored = StoredParts(message, is_available=is_available)
    stored.ConfirmMessageReceived = lambda request: is_available(0)  # that it arrived need not be known
    assert from_flower(fetched(stored, message)).header == {"kind": "hop"}
    assert failures["all"] == 4


def test_a_network_that_stays_down_is_an_error(clock):
    def is_available(polls):
        clock.now += 2.0
        raise CUT

    message = flower_message(to_flower(plain_message()))
    with pytest.raises(httpx.ConnectError):
        fetched(StoredParts(message, is_available=is_available), message)
    assert clock.now <= flower_messages.BLIP + 4.0


@pytest.mark.parametrize(("failures", "arrives"), [(3, True), (10**6, False)])
def test_parts_are_sent_again_for_a_moment(failures, arrives, clock, monkeypatch):
    monkeypatch.setattr(flower_messages, "LONGEST_PAUSE", 1.0)
    message, tried, stored = flower_message(to_flower(plain_message())), Counter(), set()

    def store(request):
        tried[request.object_id] += 1
        if tried[request.object_id] <= failures:
            raise CUT
        stored.add(request.object_id)
        return SimpleNamespace(stored=True)

    part = get_object_tree(message).object_id
    with nullcontext() if arrives else pytest.raises(httpx.ConnectError):
        flower_messages.push(SimpleNamespace(PushObject=store), ME, 7, "session", message, {part})
    assert (stored, clock.now) == (({part}, 3.0) if arrives else (set(), 6.0))
