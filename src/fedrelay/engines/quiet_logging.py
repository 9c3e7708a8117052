"""Silences loggers below the level of errors for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def errors_only(logger: str) -> Iterator[None]:
    """Let this logger and those below it emit errors only."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(before)
