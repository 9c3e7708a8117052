"""Loggers that say nothing but errors for a while."""

from __future__ import annotations

import logging

from fedrelay.engines.quiet_logging import errors_only


def test_errors_pass_and_afterwards_all_is_as_before(caplog):
    logger, below = logging.getLogger("somebody"), logging.getLogger("somebody.below")
    logger.setLevel(logging.INFO)
    with errors_only("somebody"):
        below.warning("not now")
        below.error("an error")
    below.info("again")
    assert [record.message for record in caplog.records] == ["an error", "again"]
    assert logger.level == logging.INFO
