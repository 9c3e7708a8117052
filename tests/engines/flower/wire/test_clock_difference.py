"""Clocks that disagree are named, whether requests fail or not."""

from __future__ import annotations

import logging
import re
import time
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from tests.engines.flower.wire.stand_ins import REQUEST

from fedrelay.engines.flower.wire.clock_difference import QUIET, ClockHttpInterceptor, clock_disagreement
from fedrelay.engines.flower.wire.superlink_process.protocol import TIME


def response(time, sent_at=None):
    request = httpx.Request("POST", REQUEST.url)
    if sent_at is not None:
        request.extensions["fedrelay_sent_at"] = sent_at
    return httpx.Response(200, headers={} if time is None else {TIME: str(time)}, request=request)


@pytest.mark.parametrize("theirs", [None, "", "yesterday", "nan", "inf", "now"])
def test_clocks_agree_unless_an_answer_says_otherwise(theirs):
    assert clock_disagreement(response(time.time() if theirs == "now" else theirs)) == ""


def test_a_slow_answer_is_no_disagreement():
    """It was written half a minute ago, after the request was sent."""
    now = time.time()
    assert clock_disagreement(response(now - 30, sent_at=now - 40)) == ""
    found = response(now - 100, sent_at=now - 40)
    assert re.search("is 60 s ahead of", clock_disagreement(found))


@pytest.mark.parametrize(
    ("ahead", "said"),
    [(60, "is 60 s ahead of the SuperLink's: set both"), (-60, r"is (59|60) s behind the SuperLink's")],
)
def test_clocks_that_disagree(ahead, said, caplog, monkeypatch):
    """They are named, and warned of now and then."""
    monkeypatch.setattr(ClockHttpInterceptor, "warned_at", float("-inf"))
    found = response(time.time() - ahead)
    assert re.search(said, clock_disagreement(found))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            context = SimpleNamespace(request=found.request)
            assert ClockHttpInterceptor().intercept(context, lambda context: found) is found
        assert len(caplog.records) == 1
        monkeypatch.setattr(ClockHttpInterceptor, "warned_at", time.monotonic() - QUIET - 1)
        ClockHttpInterceptor().intercept(context, lambda context: found)
    assert len(caplog.records) == 2
    assert re.search(said, caplog.text)
