"""Time that passes as tests want it; Flower, which may not be installed, is looked for by the tests themselves."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from fedrelay.engines.flower.wire import mail, server

    monkeypatch.setattr(mail, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(mail, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(server, "LOOK", 0.0)


@pytest.fixture
def clock(stand_still):
    from fedrelay.engines.flower.wire import mail

    return stand_still(mail)
