"""Frozen parameters at a node: kept under their hash, few at a time, and never believed unchecked."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from fedrelay.engines.flower.messages import FROZEN, BadMessage, Message
from fedrelay.engines.flower.node.frozen_parameter_files import KEPT, FrozenParameterFiles, MissingFrozenParameters
from fedrelay.errors import EngineError
from fedrelay.models.frozen_parameter_serialization import frozen_sha256


@pytest.fixture
def files(tmp_path):
    return FrozenParameterFiles(tmp_path / "frozen", largest=100)


def content(number: int) -> np.ndarray:
    return np.full(10, number, dtype=np.uint8)


def test_what_was_sent_is_kept(files, tmp_path):
    digest = frozen_sha256(content(1))
    assert not files.has(digest)
    files.put(digest, content(1))
    assert np.array_equal(FrozenParameterFiles(tmp_path / "frozen", 100).get(digest), content(1))
    assert files.folder.stat().st_mode & 0o077 == 0


def test_those_used_last_stay(files):
    digests = [frozen_sha256(content(number)) for number in range(KEPT + 1)]
    for number, digest in enumerate(digests):
        if number == KEPT:
            files.get(digests[0])
        files.put(digest, content(number))
        os.utime(files.folder / digest, ns=(number, number)) if number else None
    assert [files.has(digest) for digest in digests] == [True, False, *[True] * (KEPT - 1)]


def test_what_is_sent_stays_though_the_clock_was_set_back(files):
    digests = [frozen_sha256(content(number)) for number in range(KEPT + 1)]
    tomorrow = time.time() + 86_400
    for number, digest in enumerate(digests):
        files.put(digest, content(number))
        if number < KEPT:
            os.utime(files.folder / digest, (tomorrow, tomorrow + number))
    assert np.array_equal(files.get(digests[KEPT]), content(KEPT))
    assert [files.has(digest) for digest in digests] == [False, *[True] * KEPT]


def test_a_lost_or_damaged_file_is_missing(files):
    digest = frozen_sha256(content(1))
    with pytest.raises(MissingFrozenParameters, match="not at this node"):
        files.get(digest)
    files.put(digest, content(1))
    (files.folder / digest).write_bytes(b"other")
    with pytest.raises(MissingFrozenParameters, match="damaged"):
        files.get(digest)
    assert not files.has(digest)


@pytest.mark.parametrize(
    ("digest", "sent", "message"),
    [
        (frozen_sha256(content(1)), content(2), "not those it announces"),
        (frozen_sha256(content(1)), content(1).view(np.int8), "not those it announces"),
        (frozen_sha256(content(1)), content(1).reshape(2, 5), "not those it announces"),
        ("../../key", content(1), "frozen must be a SHA-256"),
        (frozen_sha256(np.zeros(101, np.uint8)), np.zeros(101, np.uint8), "have 101 bytes, this node accepts at most"),
    ],
)
def test_nothing_else_is_written(files, digest, sent, message):
    with pytest.raises((BadMessage, EngineError), match=message):
        files.put(digest, sent)
    assert not list(files.folder.iterdir())


def test_a_service_says_what_it_lacks(service):
    digest = frozen_sha256(content(1))
    request = Message({"kind": "setup", FROZEN: digest})
    assert service.answer(request).header == {"kind": "setup", "missing": True}
    assert service.answer(Message(request.header, {FROZEN: content(1)})).header["missing"] is False
    assert service.answer(request).header["missing"] is False
    with pytest.raises(BadMessage, match="frozen must be a SHA-256"):
        service.answer(Message({"kind": "setup"}))
