"""The example of `Term` runs as it is printed."""

from __future__ import annotations

import doctest

from fedrelay.local.terms import base


def test_the_example_in_the_docstring():
    failed, attempted = doctest.testmod(base)
    assert (failed, attempted > 5) == (0, True)
