"""Short pauses and a fake clock. Tests check by themselves whether Flower is installed."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from fedrelay.engines.flower.wire import flower_messages, server_side_connection

    monkeypatch.setattr(flower_messages, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(flower_messages, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(server_side_connection, "REFRESH", 0.0)


@pytest.fixture
def clock(fake_clock):
    from fedrelay.engines.flower.wire import flower_messages

    return fake_clock(flower_messages)
