"""Loggers that say nothing but errors for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def errors_only(logger: str) -> Iterator[None]:
    """Of what this logger and those below it have to say, let errors pass and nothing else."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(before)
