"""Time that passes as tests want it; Flower, which may not be installed, is looked for by the tests themselves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from fedrelay.engines.flower.wire import encoding, server_client

    monkeypatch.setattr(encoding, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(encoding, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(server_client, "REFRESH", 0.0)


@pytest.fixture
def clock(stand_still):
    from fedrelay.engines.flower.wire import encoding

    return stand_still(encoding)
